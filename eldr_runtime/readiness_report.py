"""What an assessment of a trace found, in values and in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from eldr_runtime.held_out_union import ClusterChange, HeldOutUnion

CATEGORY_BATCH_SIZE = 16


class Verdict(StrEnum):
    """What the report comes to."""

    WORTH_IT = "worth_it"
    NOTHING_TO_GAIN = "nothing_to_gain"
    INCONCLUSIVE = "inconclusive"


class CategoryFinding(StrEnum):
    """What batches of one category come to: the interval is below 0, or short of the gain that matters."""

    GAINS = "gains"
    GAINS_NOTHING = "gains_nothing"
    UNCERTAIN = "uncertain"
    TOO_SMALL = "too_small"


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryGain:
    """Union of a batch of one category against a mixed batch, %.

    The interval, 95 %, is from draws of some of its requests; None where they are too few for that (fewer
    than 21 for batches of 16). A category with fewer requests than a batch is too small for any figure.
    """

    category: str
    n_requests: int
    percent: float | None
    interval: tuple[float, float] | None
    finding: CategoryFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleChange:
    """Union change of the best static grouping found on the true decode use, in percent; a heuristic bar."""

    batch_size: int
    percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTpot:
    """Decode step time, mixed and by nearest centroid; the interval is that of the union alone."""

    batch_size: int
    mixed_experts: float
    mixed_ms: float
    clustered_ms: float
    percent: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessReport:
    """Whether routing by expert locality is worth it on the traffic of a trace.

    Attributes
    ----------
    verdict, decided_at_batch_size
        The verdict, and the batch size whose interval it rests on; None if none could be judged.
    gain
        Held-out union change by batch size; sizes that the clusters cannot fill are missing.
    clusters
        Clusters of the first split at the deciding batch size.
    categories
        By label, most gain first, then those too small; empty without labels.
    oracle
        By batch size, of one grouping found for batches of 16.
    predicted_tpot
        By batch size, for the preset; empty without one.
    preset_name, preset_source, preset_uncertainty_percent
        Where the prediction comes from.
    sentences
        The findings in words.
    """

    verdict: Verdict
    decided_at_batch_size: int | None
    least_gain_percent: float
    n_requests: int
    n_left_out: int
    n_clusters: int
    gain: tuple[HeldOutUnion, ...]
    clusters: tuple[ClusterChange, ...]
    category_batch_size: int
    categories: tuple[CategoryGain, ...]
    oracle: tuple[OracleChange, ...]
    predicted_tpot: tuple[PredictedTpot, ...] = ()
    preset_name: str | None = None
    preset_source: str | None = None
    preset_uncertainty_percent: float | None = None
    signature_note: str | None
    sentences: tuple[str, ...] = ()


def describe(report: ReadinessReport, batch_sizes: Sequence[int]) -> tuple[str, ...]:
    """Put the findings in words; `batch_sizes` are those asked for."""
    deciding = next((one for one in report.gain if one.batch_size == report.decided_at_batch_size), None)
    if deciding is None:
        return ("No batch size could be judged: too few requests are in clusters that hold a batch.",)
    size = deciding.batch_size
    sentences = [_verdict_sentence(report.verdict, deciding, report.least_gain_percent)]
    sentences += [
        f"The best static grouping found with the true decode use (a heuristic) gives {o.percent:+z.1f} %."
        for o in report.oracle
        if o.batch_size == size
    ]
    sentences += _cluster_sentences(report.clusters)
    sentences += _category_sentences(report.categories)
    sentences += [
        f"Predicted change of time per output token at batch {size} on {report.preset_name}:"
        f" {t.percent:+z.1f} % ({t.interval[0]:+z.1f} to {t.interval[1]:+z.1f} %); {report.preset_source}."
        for t in report.predicted_tpot
        if t.batch_size == size
    ]
    judged = {one.batch_size for one in report.gain}
    if missing := [str(asked) for asked in batch_sizes if asked not in judged]:
        sentences.append(
            f"Too few requests to judge batches of {', '.join(missing)}: on some split no cluster holds one."
        )
    return tuple(sentences)


def _verdict_sentence(verdict: Verdict, deciding: HeldOutUnion, least_gain_percent: float) -> str:
    low, high = deciding.interval
    measured = (
        f"requests of one cluster load {deciding.mean_percent:+z.1f} % experts at batch {deciding.batch_size}"
        f" against mixed ones (95 % interval {low:+z.1f} to {high:+z.1f} %, {len(deciding.seeds)} splits)"
    )
    matters = f"the {least_gain_percent:g} % that matters"
    meaning = {
        Verdict.WORTH_IT: f"Worth it: {measured}, all of it beyond {matters}.",
        Verdict.NOTHING_TO_GAIN: f"Nothing to gain: {measured}, short of {matters}.",
        Verdict.INCONCLUSIVE: f"Inconclusive: {measured}, on both sides of {matters}. More requests help.",
    }
    return meaning[verdict]


def _cluster_sentences(clusters: Sequence[ClusterChange]) -> list[str]:
    percents = [one.percent for one in clusters if one.percent is not None]
    if not percents:
        return []
    n_nothing = sum(percent >= 0.0 for percent in percents)
    nothing = f"{n_nothing} of them gain nothing" if n_nothing else "each gains"
    return [
        f"By cluster (first split): {min(percents):+z.1f} to {max(percents):+z.1f} % over {len(percents)}"
        f" clusters; {nothing}."
    ]


def _category_sentences(categories: Sequence[CategoryGain]) -> list[str]:
    found = {finding: [c.category for c in categories if c.finding is finding] for finding in CategoryFinding}
    sentences = []
    if nothing := found[CategoryFinding.GAINS_NOTHING]:
        sentences.append(f"Batches of one of these categories gain nothing: {', '.join(nothing)}.")
    if small := found[CategoryFinding.TOO_SMALL]:
        sentences.append(
            f"Too small for a figure, with fewer than {CATEGORY_BATCH_SIZE} requests: {len(small)} of"
            f" {len(categories)} categories."
        )
    return sentences
