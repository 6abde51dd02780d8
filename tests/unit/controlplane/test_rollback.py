from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.rollback import choose_rollback_target
from controlplane.domain.versions import Activation, ActivationKind


def history(*steps: str) -> list[Activation]:
    """Newest first, from steps in order of time: `2` promotes version 2, `<2` rolls back to it."""
    activations = []
    for index, step in enumerate(steps):
        number = int(step.removeprefix("<"))
        kind = ActivationKind.ROLL_BACK if step.startswith("<") else ActivationKind.PROMOTE
        activations.append(
            Activation(
                id=str(index), kind=kind, version_id=f"v{number}", version_number=number, actor="a",
                reason="r", is_override=False, generation=index + 1,
                at=datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=index), until=None,
            )
        )  # fmt: skip
    return activations[::-1]


def test_it_goes_to_the_version_before() -> None:
    assert choose_rollback_target(history("1", "2", "3")) == "v2"


def test_it_does_not_go_back_to_what_was_rolled_back_from() -> None:
    assert choose_rollback_target(history("1", "2", "<1")) is None
    assert choose_rollback_target(history("1", "2", "3", "<2")) == "v1"
    assert choose_rollback_target(history("1", "2", "<1", "3")) == "v1"


def test_without_an_earlier_version_there_is_no_target() -> None:
    assert choose_rollback_target([]) is None
    assert choose_rollback_target(history("1")) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=12))
def test_the_target_was_active_and_is_not_the_present_one(steps: list[tuple[bool, int]]) -> None:
    past = history(*[f"{'<' if is_back else ''}{number}" for is_back, number in steps])
    target = choose_rollback_target(past)
    if target is not None:
        assert target != past[0].version_id
        assert target in {activation.version_id for activation in past[1:]}
