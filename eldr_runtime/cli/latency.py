"""`eldr latency`: the step-time presets and what is known of them; a fit to measured decode steps."""

import csv
from dataclasses import asdict, fields
from pathlib import Path

import click
import numpy as np

from eldr_runtime.cli.console import json_option, print_facts, print_json, print_table
from eldr_runtime.errors import UnreadableFile
from eldr_runtime.latency_model import (
    CONSTANT_NAMES,
    PRESETS,
    LatencyFit,
    LatencyPreset,
    LatencyRows,
    find_preset,
    fit_latency,
)

COLUMNS = tuple(field.name for field in fields(LatencyRows))


@click.group("latency")
def latency_group() -> None:
    """Show the step-time presets, or fit one to measured decode steps."""


@latency_group.command("show")
@click.argument("name", required=False)
@json_option
def show_command(name: str | None, as_json: bool) -> None:
    """List the presets, or show NAME with the source and uncertainty of every constant."""
    presets = list(PRESETS.values()) if name is None else [find_preset(name)]
    if as_json:
        documents = [asdict(preset) for preset in presets]
        print_json(documents if name is None else documents[0])
    elif name is None:
        rows = [
            (preset.name, *_constants(preset), _uncertainty(preset.uncertainty_percent)) for preset in presets
        ]
        print_table("Step-time presets", ("preset", *CONSTANT_NAMES, "uncertainty"), rows)
    else:
        _print_preset(presets[0])


@latency_group.command("fit")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE.csv")
@json_option
def fit_command(path: Path, as_json: bool) -> None:
    """Fit the four constants to measured decode steps.

    FILE.csv has a header and the columns active_experts (mean over layers), batch, kv_tokens (of the whole
    batch) and step_ms, one row a step or a mean of alike steps.
    """
    fit = fit_latency(read_rows(path))
    if as_json:
        print_json(asdict(fit))
        return
    rows = [
        (name, f"{value:.6g}", _error(name, error, fit))
        for name, value, error in zip(CONSTANT_NAMES, _values(fit), fit.standard_errors, strict=True)
    ]
    title = f"Fit to {fit.n_rows} steps: R2 {fit.r2:.4f}, residual {fit.residual_ms:.3f} ms"
    print_table(title, ("constant", "value", "standard error"), rows)


def read_rows(path: Path) -> LatencyRows:
    """Read measured steps; a missing column or a cell that is no number is refused with its line."""
    with path.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.DictReader(stream)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise UnreadableFile(f"{path} has no column {', '.join(missing)}; its first line must name them")
        values: dict[str, list[float]] = {name: [] for name in COLUMNS}
        for row in reader:
            for name in COLUMNS:
                values[name].append(_number(path, reader.line_num, name, row[name]))
    return LatencyRows(**{name: np.array(column, dtype=np.float64) for name, column in values.items()})


def _number(path: Path, line: int, name: str, cell: str | None) -> float:
    try:
        return float(cell or "")
    except ValueError as error:
        raise UnreadableFile(f"{path} line {line}: {name} is {cell!r}; must be a number") from error


def _print_preset(preset: LatencyPreset) -> None:
    shape = preset.shape
    facts = (
        ("model", f"{shape.model}: {shape.n_layers} layers, {shape.n_experts} experts, top {shape.top_k}"),
        ("KV cache", f"{preset.kv_bytes_per_token:,.0f} bytes a token"),
        ("expert", f"{preset.expert_bytes / 1e6:.2f} MB"),
        ("source", preset.source),
        ("uncertainty", _uncertainty(preset.uncertainty_percent)),
        ("note", preset.notes),
    )
    print_facts(preset.name, facts)
    rows = [
        (
            origin.name,
            f"{origin.value:.6g}",
            _uncertainty(origin.uncertainty_percent),
            "assumed" if origin.is_assumed else "measured",
            origin.source,
        )
        for origin in preset.origins
    ]
    print_table("Constants", ("constant", "value", "uncertainty", "basis", "source"), rows)


def _constants(preset: LatencyPreset) -> tuple[str, ...]:
    return tuple(
        f"{origin.value:.4g}{' (assumed)' if origin.is_assumed else ''}" for origin in preset.origins
    )


def _uncertainty(percent: float | None) -> str:
    return "not known" if percent is None else f"+-{percent:g} %"


def _values(fit: LatencyFit) -> tuple[float, ...]:
    return tuple(getattr(fit.model, name) for name in CONSTANT_NAMES)


def _error(name: str, error: float | None, fit: LatencyFit) -> str:
    return "held at 0" if name in fit.held_at_zero or error is None else f"{error:.2g}"
