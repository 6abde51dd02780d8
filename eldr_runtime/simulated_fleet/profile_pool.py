"""Which experts a prompt's request uses: the pool of profiles that the fleet and the load generator share."""

import re
from dataclasses import dataclass, replace

import numpy as np

from eldr_runtime.array_types import Counts, Floats, Floats32
from eldr_runtime.errors import InvalidMessage, InvalidTrace
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.expert_use import log_not_used, step_probability
from eldr_runtime.model_shape import ModelShape
from eldr_runtime.simulated_fleet.count_draws import draw_counts
from eldr_runtime.simulated_fleet.generation_request import GenerationRequest
from eldr_runtime.simulation.workload import RequestProfiles

PROFILE_IN_PROMPT = re.compile(r"\bprofile (\d{1,9})\b")
NO_LABEL = "unlabelled"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfilePool:
    """Expert use of every kind of request, by profile index.

    `prefill_counts` uint32 `(n_profiles, n_layers, n_experts)`; `decode_p` float32, the same shape: the
    probability that a decode step uses an expert; `covered_tokens` and `labels` one a profile.
    """

    shape: ModelShape
    prefill_counts: Counts
    covered_tokens: tuple[int, ...]
    decode_p: Floats32
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def renamed(self, model: str) -> "ProfilePool":
        """Return the pool under another model name."""
        return replace(self, shape=replace(self.shape, model=model))

    def find(self, request: GenerationRequest) -> int:
        """Return the profile the prompt names as `profile <index>`, else one by a hash of the prompt."""
        named = PROFILE_IN_PROMPT.search(request.prompt)
        if named is None:
            return request.prompt_hash % len(self)
        index = int(named.group(1))
        if index >= len(self):
            limit = f"below {len(self)}, the number of profiles of this fleet's pack"
            raise InvalidMessage(field="profile", value=index, limit=limit)
        return index

    def prompt_counts(self, profile: int, prompt_tokens: int) -> Counts:
        """Return the prefill counts of a prompt of this length, uint32 `(n_layers, n_experts)`.

        The profile's own where the length is the same; else drawn from its shares, always alike.
        """
        counts: Counts = self.prefill_counts[profile]
        covered_tokens = self.covered_tokens[profile]
        if prompt_tokens == covered_tokens:
            return counts
        share = (counts / covered_tokens).astype(np.float32)
        rng = np.random.default_rng([profile, prompt_tokens])
        return draw_counts(share, prompt_tokens, self.shape.top_k, rng)

    def log_unused(self, profile: int) -> Floats:
        """Return `log(1 - p)` of one decode step, float64 `(n_layers, n_experts)`."""
        return log_not_used(self.decode_p[profile])

    def decode_counts(self, profile: int, n_steps: int, seed: int) -> Counts:
        """Draw the decode counts of one request, uint32 `(n_layers, n_experts)`; the same for one seed."""
        return draw_counts(self.decode_p[profile], n_steps, self.shape.top_k, np.random.default_rng(seed))


def pool_of_trace(trace: ExpertTrace) -> ProfilePool:
    """Make one profile of each request of a trace with decode counts; uncovered requests are refused."""
    if trace.decode_counts is None or trace.decode_steps is None:
        raise InvalidTrace(
            field="decode_counts", value=None, limit="present: they say how decodes use experts"
        )
    if np.any(trace.covered_tokens < 1):
        raise InvalidTrace(field="covered_tokens", value=0, limit="at least 1 in every request of the pack")
    return ProfilePool(
        shape=trace.shape,
        prefill_counts=trace.prefill_counts,
        covered_tokens=tuple(int(n) for n in trace.covered_tokens),
        decode_p=step_probability(trace.decode_counts, trace.decode_steps),
        labels=trace.labels if trace.labels is not None else (NO_LABEL,) * len(trace),
    )


def pool_of_workload(profiles: RequestProfiles) -> ProfilePool:
    """Make the pool of generated profiles, with the decode probabilities they were made of."""
    return ProfilePool(
        shape=profiles.settings.shape,
        prefill_counts=profiles.prefill_counts,
        covered_tokens=tuple(int(n) for n in profiles.prompt_tokens),
        decode_p=profiles.decode_p,
        labels=profiles.labels,
    )
