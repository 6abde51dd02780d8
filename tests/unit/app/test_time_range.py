from streamlit.testing.v1 import AppTest


def _page() -> None:
    import streamlit as st  # noqa: PLC0415  AppTest runs the body alone

    from app.time_range import current_view, show_time_range  # noqa: PLC0415

    show_time_range()
    st.write(f"shown: {current_view().range_name}")


def test_a_link_names_the_range_as_it_is_typed() -> None:
    page = AppTest.from_function(_page)
    page.query_params["range"] = "15m"
    page.run(timeout=60)
    assert not page.exception
    assert page.markdown[-1].value == "shown: 15m"
