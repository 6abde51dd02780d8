import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eldr_runtime.cli.latency import latency_group
from eldr_runtime.errors import InvalidValue, UnreadableFile
from eldr_runtime.latency_model import PRESETS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(latency_group, list(arguments))


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "steps.csv"
    lines = ["step_ms,active_experts,batch,kv_tokens,worker"]
    for n in range(20):
        experts, batch, kv_tokens = 30 + 3 * n, 1 + n * n % 7, 100 * (n % 5)
        lines.append(f"{4 + 0.1 * experts + 0.5 * batch + 0.001 * kv_tokens},{experts},{batch},{kv_tokens},w")
    path.write_text("\n".join(lines) + "\n")
    return path


class TestShow:
    def test_the_list_marks_what_is_assumed(self):
        printed = run("show").stdout
        assert all(name in printed for name in PRESETS)
        assert "(assumed)" in printed

    def test_one_preset_gives_the_source_of_every_constant(self):
        document = json.loads(run("show", "gpt-oss-20b-mi300x", "--json").stdout)
        assert len(document["origins"]) == 4
        assert all(
            origin["is_assumed"] and "not measured" in origin["source"] for origin in document["origins"]
        )
        assert "Assumed, no measurement" in run("show", "gpt-oss-20b-mi300x").stdout

    def test_all_presets_as_json(self):
        assert [preset["name"] for preset in json.loads(run("show", "--json").stdout)] == list(PRESETS)

    def test_an_unknown_preset_is_refused(self):
        error = run("show", "x").exception
        assert isinstance(error, InvalidValue)
        assert "preset is 'x'; must be one of" in str(error)


class TestFit:
    def test_recovers_the_constants_from_a_file(self, measured):
        document = json.loads(run("fit", str(measured), "--json").stdout)
        assert document["model"] == pytest.approx(
            {"t0_ms": 4.0, "per_expert_ms": 0.1, "per_request_ms": 0.5, "per_kv_token_ms": 0.001}
        )
        assert document["n_rows"] == 20
        assert "R2 1.0000" in run("fit", str(measured)).stdout

    def test_a_missing_column_is_named(self, tmp_path):
        path = tmp_path / "steps.csv"
        path.write_text("step_ms,batch\n1,2\n")
        error = run("fit", str(path)).exception
        assert isinstance(error, UnreadableFile)
        assert "has no column active_experts, kv_tokens" in str(error)

    @pytest.mark.parametrize("cell", ["", "fast"])
    def test_a_cell_that_is_no_number_is_named_with_its_line(self, measured, cell):
        measured.write_text(measured.read_text() + f"1,2,{cell},4,w\n")
        error = run("fit", str(measured)).exception
        assert isinstance(error, UnreadableFile)
        assert f"line 22: batch is {cell!r}; must be a number" in str(error)
