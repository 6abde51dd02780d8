"""One self-contained HTML file of sections: sentences, named values, figures, tables; needs no network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import plotly.graph_objects as go
import plotly.io

from eldr_runtime.cli.console import write_atomically
from eldr_runtime.errors import InvalidValue

STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f4f5f7; color: #1d2430; font: 16px/1.55 "DejaVu Sans", system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 24px; }
h2 { font-size: 1.15rem; margin: 0 0 6px; }
p { margin: 0 0 14px; max-width: 92ch; }
section {
  background: #fff; border: 1px solid #dfe3e8; border-radius: 8px; padding: 22px 26px; margin: 0 0 18px;
}
dl {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr));
  gap: 14px 24px; margin: 8px 0 4px;
}
dt { color: #5a6472; font-size: .82rem; }
dd {
  margin: 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
dd.long { font-size: 1rem; }
section.chapter { background: none; border: none; padding: 18px 0 0; }
section.chapter h2 { font-size: 1.35rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid #e6e9ee; }
th { color: #5a6472; font-weight: 600; }
th:first-child, td:first-child { text-align: left; }
"""
LONG_FACT_CHARACTERS = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """Rows of text under named columns; the first column is the row's name."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                limit = f"one cell for each of the {len(self.columns)} columns"
                raise InvalidValue(field="table row", value=row, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A title, what it means in a sentence or two, and any of: named values, a figure, a table.

    Each line of the text is a paragraph. A chapter stands above the sections that follow it, without a frame.
    """

    title: str
    text: str
    is_chapter: bool = False
    facts: tuple[tuple[str, str], ...] = ()
    figure: go.Figure | None = None
    table: ReportTable | None = None


def write_report(path: Path, title: str, sections: Sequence[ReportSection]) -> None:
    """Write the report to one file, plotly's script inlined once; whole or not at all."""
    write_atomically(path, render_report(title, sections).encode())


def render_report(title: str, sections: Sequence[ReportSection]) -> str:
    """Return the report as one HTML document."""
    body = "\n".join(_render_sections(sections))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _render_sections(sections: Sequence[ReportSection]) -> Iterator[str]:
    script_is_inlined = False
    for section in sections:
        parts = [f"<h2>{escape(section.title)}</h2>"]
        parts += [f"<p>{escape(paragraph)}</p>" for paragraph in section.text.splitlines()]
        if section.facts:
            parts.append(_render_facts(section.facts))
        if section.figure is not None:
            parts.append(_render_figure(section.figure, with_script=not script_is_inlined))
            script_is_inlined = True
        if section.table is not None:
            parts.append(_render_table(section.table))
        kind = ' class="chapter"' if section.is_chapter else ""
        yield f"<section{kind}>\n" + "\n".join(parts) + "\n</section>"


def _render_facts(facts: Sequence[tuple[str, str]]) -> str:
    cells = []
    for name, value in facts:
        kind = ' class="long"' if len(value) > LONG_FACT_CHARACTERS else ""
        cells.append(f"<div><dt>{escape(name)}</dt><dd{kind}>{escape(value)}</dd></div>")
    return f"<dl>{''.join(cells)}</dl>"


def _render_figure(figure: go.Figure, *, with_script: bool) -> str:
    html: str = plotly.io.to_html(
        figure,
        full_html=False,
        include_plotlyjs=with_script,
        include_mathjax=False,
        config={"displayModeBar": False, "responsive": True},
    )
    return html


def _render_table(table: ReportTable) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
