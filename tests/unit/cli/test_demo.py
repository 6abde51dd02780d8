from pathlib import Path

import pytest

from eldr_runtime.centroid_version import load_version
from eldr_runtime.cli.demo import DemoSize, run_demo
from eldr_runtime.trace_files import load_trace

# As few of everything as the simulator and the held-out judge accept; the shape is that of the preset.
SMALL = DemoSize(
    n_requests=40, n_workers=2, n_splits=2, n_simulated=400, n_simulated_workers=2, rate_per_second=4.0,
    n_calibration=16, n_seeds=1,
)  # fmt: skip


def test_demo_goes_the_whole_way_and_says_what_came_out(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    run_demo(output, (pack,), SMALL)
    assert sorted(path.name for path in output.iterdir()) == [
        "balanced.version.safetensors",
        "generated.safetensors",
        "generated.version.safetensors",
        "report.html",
    ]
    assert len(load_trace(output / "generated.safetensors")) == 40
    assert len(load_version(output / "generated.version.safetensors").centroids) == 2
    html = (output / "report.html").read_text()
    assert html.count('<section class="chapter">') == 3
    printed = capsys.readouterr()
    assert "join_shortest_queue" in printed.out
    assert "report.html" in printed.out
    assert printed.err.endswith(f"look at {output / 'report.html'}\n")
