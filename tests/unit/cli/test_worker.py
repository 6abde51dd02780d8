import socket
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
