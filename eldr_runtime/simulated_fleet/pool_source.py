"""Where fleet and load generator take their profiles from: one pack or one seeded workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eldr_runtime.errors import InvalidConfig
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.simulated_fleet.profile_pool import ProfilePool, pool_of_trace, pool_of_workload
from eldr_runtime.simulated_fleet.traffic_mix import unseen_topic_of
from eldr_runtime.simulation.workload import MixName, WorkloadSettings, generate_profiles, topic_shares
from eldr_runtime.trace_import import open_trace

# A calibration pack generated with the same seed has the same topics, but must not hold the same requests.
PROFILE_SEED_OFFSET = 1_000_003
# as `eldr traces generate` names it: it has the shape of a model, but is none
GENERATED_SHAPE = ModelShape(model="generated-48x128", n_layers=48, n_experts=128, top_k=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSource:
    """A trace pack, or else the settings of a generated pool; `model` renames the model of either.

    `prompts` is a prompt file in the place of both: requests without profiles, which cannot be opened.
    """

    pack: Path | None
    workload: MixName | None
    n_profiles: int
    prompt_tokens: int
    seed: int
    model: str | None = None
    prompts: Path | None = None

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.pack, self.workload, self.prompts)) != 1:
            limit = "given, or else a workload or prompts, and only one of them"
            raise InvalidConfig(field="pack", value=self.pack, limit=limit)
        if self.prompts is not None and self.model is None:
            raise InvalidConfig(field="model", value=None, limit="given with prompts: they name none")

    def open(self) -> ProfilePool:
        """Read or generate the pool."""
        pool = self._open()
        return pool if self.model is None else pool.renamed(self.model)

    def topic_shares(self, unseen_topic: str | None) -> Mapping[str, float] | None:
        """Return the shares the workload begins with, without the unseen topic; None: balanced."""
        if self.workload is None:
            return None
        settings = self._settings()
        shares = dict(zip(settings.labels, topic_shares(settings, 0.0).tolist(), strict=True))
        return {topic: share for topic, share in shares.items() if topic != unseen_topic}

    def _open(self) -> ProfilePool:
        if self.pack is not None:
            return pool_of_trace(open_trace(self.pack))
        profiles = generate_profiles(self._settings(), seed=self.seed + PROFILE_SEED_OFFSET)
        return pool_of_workload(profiles)

    def _settings(self) -> WorkloadSettings:
        return WorkloadSettings(
            mix=self.workload or MixName.BALANCED,
            shape=GENERATED_SHAPE,
            prompt_tokens=self.prompt_tokens,
            n_profiles=self.n_profiles,
            seed=self.seed,
        )


def unseen_topic(labels: Sequence[str], wanted: str) -> str | None:
    """Return the topic to keep back: a name, `none`, or `last`: the last by name of several."""
    if wanted == "none":
        return None
    if wanted != "last":
        return wanted
    return unseen_topic_of(labels) if len(set(labels)) > 1 else None
