import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.cli.run_folder import FolderInUse, Keys, Processes, Run, RunFolder
from eldr_runtime.errors import UnreadableFile

KEYS = Keys(admin="eldr_a_1", operator="eldr_o_2", service="eldr_s_3")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(path=tmp_path / "nested" / "data")
    folder.make()
    return folder


@pytest.fixture
def run_of() -> Callable[..., Run]:
    def build() -> Run:
        return Run(
            fleet="demo",
            control_plane_url="http://127.0.0.1:1",
            router_url="http://127.0.0.1:2",
            dashboard_url=None,
            fleet_control_url="http://127.0.0.1:3",
            load_control_url=None,
        )

    return build


@contextmanager
def sleeping(comment: str) -> Iterator[int]:
    program = f"import time; print('up', flush=True); time.sleep(60)  # {comment}"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_and_its_keys_are_for_the_owner_alone(folder: RunFolder) -> None:
    folder.write_keys(KEYS)
    assert (mode_of(folder.path), mode_of(folder.keys_file)) == (0o700, 0o600)
    assert folder.read_keys() == KEYS
    folder.make()
    assert folder.read_keys() == KEYS


def test_keys_written_over_a_readable_file_are_not_readable(folder: RunFolder) -> None:
    folder.keys_file.write_text("{}")
    folder.keys_file.chmod(0o644)
    folder.write_keys(KEYS)
    assert mode_of(folder.keys_file) == 0o600
    assert sorted(path.name for path in folder.path.iterdir()) == ["keys.json", "logs", "router"]


def test_run_is_read_as_it_was_written_and_then_removed(
    folder: RunFolder, run_of: Callable[..., Run]
) -> None:
    folder.write_run(run_of())
    assert folder.read_run() == run_of()
    folder.remove_run()
    folder.remove_run()
    with pytest.raises(UnreadableFile, match="no `eldr up` runs"):
        folder.read_run()


def test_missing_and_damaged_files_are_named(folder: RunFolder, run_of: Callable[..., Run]) -> None:
    with pytest.raises(UnreadableFile, match=r"keys\.json is not there"):
        folder.read_keys()
    folder.keys_file.write_text('{"admin": "x"}')
    with pytest.raises(UnreadableFile, match=r"keys\.json: .*operator"):
        folder.read_keys()
    (folder.path / "run.json").write_text("[" * 100_000)
    with pytest.raises(UnreadableFile, match=r"run\.json"):
        folder.read_run()
    (folder.path / "run.json").write_text("{")
    with pytest.raises(UnreadableFile, match=r"run\.json"):
        folder.read_run()


def test_a_folder_serves_one_run_at_a_time(folder: RunFolder) -> None:
    with folder.in_use(), pytest.raises(FolderInUse, match="another `eldr up` runs"), folder.in_use():
        pass
    with folder.in_use():
        pass


def test_processes_left_over_from_a_killed_run_are_named(folder: RunFolder) -> None:
    """Also where it was killed before it had started all of them and could say where they are."""
    with sleeping("controlplane.cli.main") as pid:
        folder.write_processes(Processes(pids={"router": pid, "load": 2**22 + 1}))
        with pytest.raises(FolderInUse, match=f"end them: router {pid}$"), folder.in_use():
            pass


def test_a_process_id_that_was_given_to_somebody_else_is_no_reason_to_refuse(folder: RunFolder) -> None:
    with sleeping("another program") as pid:
        folder.write_processes(Processes(pids={"router": pid}))
        with folder.in_use():
            assert folder.read_processes().pids == {"router": pid}
    folder.remove_run()
    assert folder.read_processes().pids == {}
