"""What the plugin is told in `kv_connector_extra_config` of its entry in vLLM's `--kv-transfer-config`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eldr_runtime.json_values import from_json_value
from eldr_runtime.vllm_adapter.decode_profiles import ProfileTarget, TargetFile


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """Settings of the plugin; one that it does not know is refused.

    Parameters
    ----------
    worker_id
        Name of this worker in decode profiles; the engine's own id if not given.
    model
        Name of the model in counts; the served model's if not given.
    decode_profile_file
        JSON file with `urls` and `share`, looked at once a second; the launcher writes it.
    decode_profiles
        The same where it never changes; the file goes before it.
    """

    worker_id: str | None = None
    model: str | None = None
    decode_profile_file: str | None = None
    decode_profiles: ProfileTarget = field(default_factory=ProfileTarget)

    @classmethod
    def from_extra_config(cls, extra: Mapping[str, object]) -> "PluginSettings":
        """Read the settings; JSON lists are tuples here."""
        return from_json_value(cls, dict(extra), unknown="refuse")

    def target_file(self) -> TargetFile | None:
        """Return the file that says where profiles go, if there is one."""
        return None if self.decode_profile_file is None else TargetFile(Path(self.decode_profile_file))
