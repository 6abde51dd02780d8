"""The live knobs and their limits."""

from dataclasses import dataclass

from controlplane.domain.limits import check_between
from eldr_runtime.errors import InvalidValue
from eldr_runtime.policies.choice import MAX_TAU, PolicyName, PolicySettings

# `domain` needs the true label of a request, which only simulations have.
POLICIES = tuple(policy for policy in PolicyName if policy is not PolicyName.DOMAIN)
MAX_CONTROL_SHARE = 0.5
# A cap of this many times the mean load binds in no pool of up to as many workers: it is none.
MAX_LOAD_CAP = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """The live knobs, within their limits; `load_cap` None is no cap."""

    policy: str
    tau: float
    load_cap: float | None
    control_share: float

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise InvalidValue(field="policy", value=self.policy, limit=f"one of {', '.join(POLICIES)}")
        check_between("tau", self.tau, 0, MAX_TAU)
        check_between("control_share", self.control_share, 0, MAX_CONTROL_SHARE)
        if self.load_cap is not None and not 1 <= self.load_cap <= MAX_LOAD_CAP:
            raise InvalidValue(
                field="load_cap", value=self.load_cap, limit=f"from 1 to {MAX_LOAD_CAP:g}, or 0 for none"
            )

    def to_policy(self) -> PolicySettings:
        """Translate to what a router runs: only `eldr_capped` has a cap, where None would be a default."""
        policy = PolicyName(self.policy)
        if policy is not PolicyName.ELDR_CAPPED:
            return PolicySettings(policy=policy, tau=self.tau)
        load_cap = MAX_LOAD_CAP if self.load_cap is None else self.load_cap
        return PolicySettings(policy=policy, tau=self.tau, load_cap=load_cap)


FIRST_SETTINGS = Knobs(policy="eldr_capped", tau=0.1, load_cap=1.25, control_share=0.0)
