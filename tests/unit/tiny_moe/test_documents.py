import json
from pathlib import Path

from assets.tiny_moe.documents import (
    HELD_OUT_SHARE,
    Document,
    capped,
    help_documents,
    page_lines,
    read_code,
    read_help,
    read_legal,
    read_math,
    read_medical,
    split,
)


def _document(name: str, family: str, text: str = "text") -> Document:
    return Document(name=name, family=family, text=text)


def test_split_parts_every_document_by_its_family_and_always_alike() -> None:
    documents = [_document(f"{family}-{copy}", f"page-{family}") for family in range(1000) for copy in "ab"]
    training, held_out = split(documents)
    assert sorted(d.name for d in training + held_out) == sorted(d.name for d in documents)
    assert not {d.family for d in training} & {d.family for d in held_out}
    assert abs(len(held_out) / len(documents) - HELD_OUT_SHARE) < 0.03
    assert split(documents) == (training, held_out)


def test_cap_keeps_the_lowest_ranks_until_the_limit() -> None:
    documents = [_document("b", "b", "12345"), _document("c", "c", "éé"), _document("a", "a", "123")]
    kept = capped(documents, limit_bytes=4, rank=lambda name: name)
    assert [document.name for document in kept] == ["a", "b"]


def test_code_leaves_out_tests(tmp_path: Path) -> None:
    for name in ("os.py", "test/test_os.py", "json/tests/tool.py", "json/decoder.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    assert [document.name for document in read_code(tmp_path)] == ["json/decoder.py", "os.py"]


def test_math_keeps_comment_and_statement_without_proof_and_credit(tmp_path: Path) -> None:
    database = tmp_path / "set.mm"
    database.write_text(
        "$( A note. $)\n$c x $.\n"
        "  $( Identity law.\n     (Contributed by AB, 1-Jan-2000.) $)\n"
        "  id $p |- ( ph ->\n     ph ) $= ( wi ) AB $.\n"
        "  $( Modus ponens. $)\n  ax-mp $a |- ps $.\n"
    )
    (document,) = read_math(database)
    assert document.text == "id: Identity law.\n  |- ( ph -> ph )\n\nax-mp: Modus ponens.\n  |- ps\n"


def test_medical_makes_a_document_of_a_category(tmp_path: Path) -> None:
    tabular = tmp_path / "icd.xml"
    tabular.write_text(
        "<root><chapter><section><diag><name>A00</name><desc>Cholera</desc>"
        "<excludes1><note>typhoid\n fever</note></excludes1>"
        "<diag><name>A00.0</name><desc>Classical cholera</desc></diag></diag></section></chapter></root>"
    )
    (document,) = read_medical(tabular)
    assert document.text == "A00 Cholera\n  excludes1: typhoid fever\nA00.0 Classical cholera\n"


def test_versions_of_a_licence_are_one_family(tmp_path: Path) -> None:
    licences = tmp_path / "spdx.json"
    names = ("GPL-2.0-only", "GPL-3.0", "0BSD", "BSD-3-Clause", "MIT")
    licences.write_text(json.dumps({name: {"licenseText": name} for name in names}))
    assert [d.family for d in read_legal(licences)] == ["bsd", "bsd", "gpl", "gpl", "mit"]


PAGE = (
    '<html><header>Site</header><div id="DisplayArea" x="y">\n<h1>Load &amp;\nsave</h1>'
    '<p>Choose <span hidden="true" id="MAC1" class="MAC"><span class="emph">Mac</span></span>'
    "<span>Tools</span>.</p><footer><p>Help us</p></footer></div></html>"
)


def test_page_lines_are_the_text_of_the_page_alone() -> None:
    assert page_lines(PAGE) == ["Load & save", "Choose Tools."]


def test_lines_of_the_site_and_untranslated_lines_are_dropped(tmp_path: Path) -> None:
    for number in range(6):
        page = f'<div id="DisplayArea"><p>Donate</p><p>Seite {number}</p><p>Syntax {number}</p></div>'
        (tmp_path / f"{number}.html").write_text(page)
    lines_of = read_help(tmp_path)
    assert lines_of["3.html"] == ["Seite 3", "Syntax 3"]
    documents = help_documents(lines_of, untranslated=frozenset(f"Syntax {n}" for n in range(6)))
    assert documents[3] == _document("3.html", "3.html", "Seite 3\n")
