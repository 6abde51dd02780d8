"""What the tracked files may not name, and the form of the changelog."""

import re
import subprocess
from pathlib import Path

import pytest

# Each is put together here, so that this file does not find itself.
FORBIDDEN = (
    "/wo" + "rk/",
    "/ro" + "ot/",
    "/ho" + "me/",
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "npmjs" + ".org",
    "deb.debian" + ".org",
    "proxy.golang" + ".org",
)
CHANGELOG_SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.fixture(scope="session")
def tracked_files(repository: Path) -> list[Path]:
    if not (repository / ".git").exists():
        pytest.skip("not a git checkout, so there is no list of tracked files")
    listing = ["git", "ls-files", "--cached", "-z"]
    names = subprocess.run(listing, cwd=repository, capture_output=True, text=True, check=True).stdout
    return [path for name in names.split("\0") if name and (path := repository / name).is_file()]


def test_tracked_files_name_no_machine_and_no_registry(tracked_files: list[Path]) -> None:
    assert len(tracked_files) > 10
    found = {
        f"{path.name}: {phrase}"
        for path in tracked_files
        for phrase in FORBIDDEN
        if phrase.encode() in path.read_bytes()
    }
    assert found == set()


def test_tracked_files_hold_no_merge_marks(tracked_files: list[Path]) -> None:
    mark = re.compile(rb"^(<{7}|>{7}) ", re.MULTILINE)
    assert [path.name for path in tracked_files if mark.search(path.read_bytes())] == []


def test_changelog_keeps_its_form(repository: Path) -> None:
    lines = (repository / "CHANGELOG.md").read_text().splitlines()
    assert lines[0] == "# Changelog"
    releases = [line for line in lines if line.startswith("## ")]
    assert releases[0] == "## [Unreleased]"
    for release in releases[1:]:
        assert re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", release), release
    sections = [line.removeprefix("### ") for line in lines if line.startswith("### ")]
    assert set(sections) <= CHANGELOG_SECTIONS
    entries = lines[lines.index(releases[0]) :]
    for line in entries:
        assert re.match(r"(#{2,3} \S|- \S|  \S|$)", line), line
