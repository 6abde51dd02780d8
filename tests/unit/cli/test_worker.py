import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eldr_runtime.cli.main import run
from eldr_runtime.cli.worker import _api_key


def test_dry_run_shows_command_and_environment(run_json, tmp_path: Path) -> None:
    shown = run_json("worker", "prefill", "--model", tmp_path, "--device", "cpu", "--dry-run")
    assert shown["command"][1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert shown["environment"]["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "127.0.0.1"


def test_dry_run_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["worker", "decode", "--model", "a b", "--kv-port", "5700", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "VLLM_NIXL_SIDE_CHANNEL_PORT=5700 \\\n" in printed
    assert "--model 'a b'" in printed


def test_extra_arguments_are_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["worker", "decode", "--model", "m", "--dry-run", "--", "--tensor-parallel-size", "2"]) == 2
    assert "tensor_parallel_size is 2; must be 1" in capsys.readouterr().err


def test_key_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELDR_API_KEY", "from-environment")
    file = tmp_path / "key"
    file.write_text("from-file\n")
    assert (_api_key(file), _api_key(None)) == ("from-file", "from-environment")


def test_free_kv_ports_are_free(run_json) -> None:
    shown = run_json("worker", "decode", "--model", "m", "--dry-run")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", int(shown["environment"]["VLLM_NIXL_SIDE_CHANNEL_PORT"])))


def test_vllm_ends_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    fake = Path(__file__).parents[2] / "fakes" / "fake_vllm_process.py"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {fake} "$@"\n')
    python.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "controlplane.cli.main", "worker", "decode", "--model", "m"]
    command += ["--device", "cpu", "--port", str(port), "--python", str(python)]
    launcher = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        assert launcher.stderr is not None
        assert b"passed its self-test" in launcher.stderr.readline()
        assert _listens(port)
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.communicate()
    until = time.monotonic() + 30
    while _listens(port) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _listens(port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
