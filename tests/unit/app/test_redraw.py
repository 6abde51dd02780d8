from streamlit.testing.v1 import AppTest


def _script(seen: list[int], answers: list[int], *, has_dialog: bool = False) -> None:
    import streamlit as st  # noqa: PLC0415  (Streamlit runs this function's source alone)

    from app.confirm import PENDING  # noqa: PLC0415
    from app.redraw import redraw_when_changed  # noqa: PLC0415

    if has_dialog:
        st.session_state[PENDING] = "a change"

    def read() -> int:
        seen.append(answers.pop(0) if len(answers) > 1 else answers[0])
        return seen[-1]

    redraw_when_changed(read)
    st.caption(f"drawn from {seen[-1]}")


def _run(answers: list[int], *, has_dialog: bool = False) -> tuple[AppTest, list[int]]:
    seen: list[int] = []
    app = AppTest.from_function(_script, args=(seen, answers), kwargs={"has_dialog": has_dialog}).run()
    return app, seen


def test_a_page_is_drawn_anew_from_what_has_changed() -> None:
    app, seen = _run([1, 2])
    assert seen == [1, 2, 2, 2]
    assert [each.value for each in app.caption] == ["drawn from 2"]


def test_a_page_stays_while_nothing_has_changed() -> None:
    assert _run([1])[1] == [1, 1]


def test_nothing_moves_under_a_dialog() -> None:
    assert _run([1, 2], has_dialog=True)[1] == [1]
