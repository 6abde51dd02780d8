"""Documents of the corpus, read from the unpacked packages."""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from eldr_runtime.sampling import is_sampled

HELD_OUT_SHARE = 0.1
# A line on more pages than this is part of the site, not of the page.
SITE_LINE_SHARE = 0.2
STATEMENTS_PER_DOCUMENT = 40
NOT_READ = {"test", "tests", "idle_test", "lib2to3", "site-packages", "pydoc_data", "encodings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text; all documents of one `family` are on the same side of the split."""

    name: str
    family: str
    text: str

    @property
    def is_held_out(self) -> bool:
        """Whether the model never sees it in training: a pure function of the family's name."""
        return is_sampled(self.family, HELD_OUT_SHARE)


def split(documents: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """Part documents into those to train on and those held out, in their order."""
    return (
        [document for document in documents if not document.is_held_out],
        [document for document in documents if document.is_held_out],
    )


def read_code(library: Path) -> list[Document]:
    """Read Python's standard library, without its tests and tables."""
    paths = (path.relative_to(library) for path in sorted(library.rglob("*.py")))
    names = [path for path in paths if not NOT_READ & set(path.parts)]
    texts = ((name.as_posix(), (library / name).read_text(errors="replace")) for name in names)
    return [Document(name=name, family=name, text=text) for name, text in texts if text.strip()]


_STATEMENT = re.compile(r"\$\(\s((?:(?!\$\)).)*?)\s\$\)\s+(\S+) \$[ap] (.*?)\s*(?:\$=[^$]*)?\$\.", re.DOTALL)
_CREDIT = re.compile(r"\s*\((?:Contributed|Revised|Proof|New usage|Proposed)[^()]*(?:\([^()]*\)[^()]*)*\)")


def read_math(database: Path) -> list[Document]:
    """Read the comments and statements of a Metamath database, without its proofs."""
    statements = [
        f"{label}: {' '.join(_CREDIT.sub('', comment).split())}\n  {' '.join(formula.split())}\n"
        for comment, label, formula in _STATEMENT.findall(database.read_text())
    ]
    starts = range(0, len(statements), STATEMENTS_PER_DOCUMENT)
    return [
        Document(
            name=f"{database.name}#{start}",
            family=f"{database.name}#{start}",
            text="\n".join(statements[start : start + STATEMENTS_PER_DOCUMENT]),
        )
        for start in starts
    ]


def read_medical(tabular: Path) -> list[Document]:
    """Read a tabular list of ICD-10-CM: one document for each three-character category."""
    return [
        Document(name=name, family=name, text="\n".join(_diagnosis_lines(category)) + "\n")
        for chapter in ElementTree.parse(tabular).getroot().iter("chapter")
        for category in chapter.findall("section/diag")
        if (name := category.findtext("name", ""))
    ]


def _diagnosis_lines(diagnosis: ElementTree.Element) -> Iterator[str]:
    yield f"{diagnosis.findtext('name', '')} {diagnosis.findtext('desc', '')}"
    for part in diagnosis:
        if part.tag == "diag":
            yield from _diagnosis_lines(part)
        else:
            for note in part.findall("note"):
                yield f"  {part.tag}: {' '.join((note.text or '').split())}"


def read_legal(licences: Path) -> list[Document]:
    """Read the texts of the SPDX licence list; versions and variants of a licence are one family."""
    entries = sorted(json.loads(licences.read_text()).items())
    return [
        Document(name=name, family=re.split(r"[-.\d]", name.lower().lstrip("0123456789"))[0], text=text)
        for name, entry in entries
        if (text := entry["licenseText"].strip())
    ]


_MAC_VARIANT = re.compile(r'<span hidden="true" id="MAC[^>]*>(?:<span[^>]*>[^<]*</span>|[^<])*</span>')
_NOT_TEXT = re.compile(r"<(script|style|footer|nav|button)\b.*?</\1>", re.DOTALL)
_BLOCK_END = re.compile(r"</(?:p|h\d|td|th|li|pre|div|tr)>|<br\s*/?>")
_TAG = re.compile(r"<[^>]*>")


def page_lines(page: str) -> list[str]:
    """Lines of text of one page of the LibreOffice help."""
    _, _, body = page.partition('id="DisplayArea"')
    body = _NOT_TEXT.sub("", _MAC_VARIANT.sub("", body.partition(">")[2])).replace("\n", " ")
    text = html.unescape(_TAG.sub("", _BLOCK_END.sub("\n", body)))
    return [line for raw in text.splitlines() if (line := " ".join(raw.split()))]


def read_help(pages: Path) -> dict[str, list[str]]:
    """Read the lines of each page of the help, in one language, without those of the site around it."""
    lines_of = {
        path.relative_to(pages).as_posix(): page_lines(path.read_text(errors="replace"))
        for path in sorted(pages.rglob("*.html"))
    }
    n_pages_with = Counter(line for lines in lines_of.values() for line in set(lines))
    site = {line for line, n_pages in n_pages_with.items() if n_pages > SITE_LINE_SHARE * len(lines_of)}
    return {name: [line for line in lines if line not in site] for name, lines in lines_of.items()}


def help_documents(lines_of: dict[str, list[str]], untranslated: frozenset[str]) -> list[Document]:
    """Make documents of pages, without lines in `untranslated`: half of the Japanese bytes were English.

    The family is the page, so that a held-out page is held out in every language.
    """
    kept = {name: [line for line in lines if line not in untranslated] for name, lines in lines_of.items()}
    return [
        Document(name=name, family=name, text="\n".join(lines) + "\n")
        for name, lines in kept.items()
        if lines
    ]


def capped(documents: Sequence[Document], limit_bytes: int, rank: Callable[[str], str]) -> list[Document]:
    """Keep the documents of lowest rank, by name, until `limit_bytes` of UTF-8 are reached."""
    kept, n_bytes = [], 0
    for document in sorted(documents, key=lambda document: rank(document.name)):
        if n_bytes >= limit_bytes:
            break
        kept.append(document)
        n_bytes += len(document.text.encode())
    return kept
