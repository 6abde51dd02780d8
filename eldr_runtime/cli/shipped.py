"""What ships beside the code: the tiny mixture-of-experts model, its prompts, the trace recorded from it."""

from pathlib import Path

from eldr_runtime.errors import UnreadableFile
from eldr_runtime.expert_trace import ExpertTrace
from eldr_runtime.trace_import import open_trace

TINY_MOE = Path(__file__).parents[2] / "assets" / "tiny_moe"
CHECKPOINT = TINY_MOE / "checkpoint"
PROMPTS = TINY_MOE / "prompts.jsonl"
RECORDED_TRACE = TINY_MOE / "trace.safetensors"


def open_given_trace(path: Path | None) -> ExpertTrace:
    """Read the trace at `path`, or the recorded one where none is given."""
    if path is not None:
        return open_trace(path)
    if not RECORDED_TRACE.exists():
        raise UnreadableFile(f"{RECORDED_TRACE} is not there, as from a checkout: give PATH")
    return open_trace(RECORDED_TRACE)
