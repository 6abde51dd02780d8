"""The rules of import stand in pyproject.toml; here they are run, and what they cannot say is checked."""

import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

IMPURE = {"cli", "router", "simulated_fleet", "trace_collection", "vllm_adapter", "worker_registration"}
PURE_MAY_IMPORT = {"hdrh", "numpy", "safetensors", "scipy", "sklearn"}
# rich and pandas are not among them: scikit-learn itself loads them where they are installed.
NEVER_LOADED_BY_PURE_MODULES = (
    "aiohttp", "alembic", "click", "fastapi", "httpx", "plotly", "sqlalchemy", "starlette", "streamlit",
    "torch", "uvicorn", "vllm",
)  # fmt: skip


@pytest.fixture(scope="session")
def contracts(repository: Path) -> dict[str, dict[str, object]]:
    settings = tomllib.loads((repository / "pyproject.toml").read_text())
    return {contract["id"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}


@pytest.fixture(scope="session")
def pure_modules(contracts: dict[str, dict[str, object]]) -> list[str]:
    return sorted(contracts["pure-modules"]["source_modules"])


def test_import_contracts_are_kept(repository: Path) -> None:
    program = [
        sys.executable,
        "-c",
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())",
    ]
    run = subprocess.run(program, cwd=repository, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_every_module_of_the_runtime_is_either_pure_or_known_to_be_not(pure_modules: list[str]) -> None:
    graph = grimp.build_graph("eldr_runtime", cache_dir=None)
    names = {module.rpartition(".")[2] for module in graph.find_children("eldr_runtime")}
    assert pure_modules == sorted(f"eldr_runtime.{name}" for name in names - IMPURE)


def test_pure_modules_import_numeric_libraries_alone(pure_modules: list[str]) -> None:
    graph = grimp.build_graph("eldr_runtime", include_external_packages=True, cache_dir=None)
    foreign = {
        f"{importer} imports {imported}"
        for module in pure_modules
        for importer in {module} | graph.find_descendants(module)
        for imported in graph.find_modules_directly_imported_by(importer)
        if imported.partition(".")[0] not in PURE_MAY_IMPORT | {"eldr_runtime"} | sys.stdlib_module_names
    }
    assert foreign == set()


def test_pure_modules_load_no_framework_and_no_engine(pure_modules: list[str]) -> None:
    program = (
        f"import sys, {', '.join(['eldr_runtime', *pure_modules])}\n"
        f"print(*sorted({set(NEVER_LOADED_BY_PURE_MODULES)} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
