"""From the name of a policy to the policy."""

from collections.abc import Callable, Mapping

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.policies.choice import PolicyName, PolicySettings, RoutingPolicy, TieBreak
from eldr_runtime.policies.domain_oracle import DomainOracle
from eldr_runtime.policies.load_balancing import (
    JoinShortestQueue,
    PowerOfTwoChoices,
    RandomWorker,
    RoundRobin,
)
from eldr_runtime.policies.locality_band import LocalityBand


def build_policy(
    settings: PolicySettings, *, label_shares: Mapping[str, float] | None = None
) -> RoutingPolicy:
    """Build the policy that the settings name; `label_shares` is the mix that `domain` needs."""
    return _BUILDERS[settings.policy](settings, label_shares)


def _build_published(settings: PolicySettings, label_shares: Mapping[str, float] | None) -> RoutingPolicy:
    return LocalityBand(
        tau=settings.tau,
        load_cap=None,
        minimum_candidates=settings.minimum_candidates,
        tie_break=TieBreak.LOWEST_INDEX,
    )


def _build_capped(settings: PolicySettings, label_shares: Mapping[str, float] | None) -> RoutingPolicy:
    return LocalityBand(
        tau=settings.tau,
        load_cap=settings.effective_load_cap,
        minimum_candidates=settings.minimum_candidates,
        tie_break=TieBreak.SEEDED_DRAW,
    )


def _build_domain(settings: PolicySettings, label_shares: Mapping[str, float] | None) -> RoutingPolicy:
    if label_shares is None:
        limit = f"the label mix of the calibration, which policy {settings.policy.value} needs"
        raise InvalidConfig(field="label_shares", value=None, limit=limit)
    return DomainOracle.from_mix(label_shares)


_Builder = Callable[[PolicySettings, Mapping[str, float] | None], RoutingPolicy]

_BUILDERS: Mapping[PolicyName, _Builder] = {
    PolicyName.ELDR: _build_published,
    PolicyName.ELDR_CAPPED: _build_capped,
    PolicyName.ROUND_ROBIN: lambda settings, label_shares: RoundRobin(),
    PolicyName.RANDOM: lambda settings, label_shares: RandomWorker(),
    PolicyName.JOIN_SHORTEST_QUEUE: lambda settings, label_shares: JoinShortestQueue(),
    PolicyName.POWER_OF_TWO_CHOICES: lambda settings, label_shares: PowerOfTwoChoices(),
    PolicyName.DOMAIN: _build_domain,
}
