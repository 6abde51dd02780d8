"""Files of at most 400 lines, functions of at most 50: what is longer stands here with its reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("eldr_runtime", "controlplane", "app", "migrations", "tests")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
ALLOWED: dict[str, str] = {}  # "path" or "path:function" -> the reason


def _sources(repository: Path) -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((repository / package).rglob("*.py")):
            yield path.relative_to(repository).as_posix(), path.read_text()


def _functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _n_code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function without those of its docstring, which may be as long as it must."""
    n_lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        n_lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return n_lines


def _too_long(repository: Path) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for name, source in _sources(repository):
        n_lines = source.count("\n")
        if n_lines > MAX_FILE_LINES:
            lengths[name] = n_lines
        for function in _functions(source):
            n_lines = _n_code_lines(function)
            if n_lines > MAX_FUNCTION_LINES:
                lengths[f"{name}:{function.name}"] = n_lines
    return lengths


def test_nothing_is_longer_than_allowed(repository: Path) -> None:
    too_long = {name: n_lines for name, n_lines in _too_long(repository).items() if name not in ALLOWED}
    assert too_long == {}


def test_every_exception_is_still_needed_and_gives_its_reason(repository: Path) -> None:
    assert set(ALLOWED) <= set(_too_long(repository))
    assert all(ALLOWED.values())
