from pathlib import Path

import plotly.graph_objects as go
import pytest

from eldr_runtime.cli.report_html import ReportSection, ReportTable, render_report, write_report
from eldr_runtime.errors import InvalidValue

SCRIPT_MARK = "plotly.js v"  # stands once in the banner of plotly's own script


def test_text_is_escaped() -> None:
    section = ReportSection(
        title="<b>",
        text="a < b & c",
        facts=(("n<1", "<i>"),),
        table=ReportTable(columns=("<th>",), rows=(("<td>",),)),
    )
    html = render_report("<title>", [section])
    assert "<h2>&lt;b&gt;</h2>" in html
    assert "a &lt; b &amp; c" in html
    assert "<dt>n&lt;1</dt><dd>&lt;i&gt;</dd>" in html
    assert "<th>&lt;th&gt;</th>" in html
    assert "<td>&lt;td&gt;</td>" in html


def test_each_line_of_the_text_is_a_paragraph() -> None:
    html = render_report("T", [ReportSection(title="t", text="one\ntwo")])
    assert "<p>one</p>\n<p>two</p>" in html


def test_script_is_inlined_once_however_many_figures() -> None:
    sections = [ReportSection(title=str(n), text="", figure=go.Figure()) for n in range(3)]
    html = render_report("Three", sections)
    assert html.count(SCRIPT_MARK) == 1
    assert html.count("Plotly.newPlot(") >= 3
    assert "<script src" not in html
    assert "<link" not in html


def test_report_without_figures_carries_no_script() -> None:
    assert "<script" not in render_report("None", [ReportSection(title="t", text="x")])


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(InvalidValue, match="one cell for each of the 2 columns"):
        ReportTable(columns=("a", "b"), rows=(("1",),))


def test_report_is_written_whole_into_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write_report(path, "Title", [ReportSection(title="t", text="x")])
    assert path.read_text().endswith("</html>\n")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_a_chapter_is_marked_and_a_section_is_not() -> None:
    sections = [ReportSection(title="One", text="", is_chapter=True), ReportSection(title="Two", text="")]
    html = render_report("T", sections)
    assert '<section class="chapter">\n<h2>One</h2>' in html
    assert "<section>\n<h2>Two</h2>" in html
