"""Which domain the subjects of public benchmarks belong to (the table is ours).

A benchmark has many subjects with few requests each, too few for a figure of their own; a domain puts those
together that a reader would expect to use the same experts.
"""

from collections.abc import Mapping
from types import MappingProxyType


def domain_of(dataset: str, category: str) -> str:
    """Return the domain of a category of a data set; a category it does not know stands for itself.

    Parameters
    ----------
    dataset
        Name of the data set with its split, such as `mmlu_test`, `mmlu_pro_validation` or `gpqa_main`.
    category
        Its category, such as `college_physics`.

    Examples
    --------
    >>> domain_of("mmlu_pro_test", "health"), domain_of("sorry_bench_base", "7")
    ('medical', 'safety')
    >>> domain_of("mmlu_test", "falconry")
    'falconry'
    """
    for prefix, domain in WHOLE_DATASETS.items():
        if dataset.startswith(prefix):
            return domain
    for prefix, subjects in SUBJECTS.items():
        if dataset.startswith(prefix):
            return subjects.get(category, category)
    return category


def _by_subject(subjects_of: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
    return MappingProxyType(
        {subject: domain for domain, subjects in subjects_of.items() for subject in subjects}
    )


WHOLE_DATASETS: Mapping[str, str] = MappingProxyType(
    {
        "Polyglot-or-Not": "fact checking",
        "sorry_bench": "safety",
        "tulu3_persona_if": "instruction following",
    }
)
"""Data sets of one domain, by the start of their name."""

_MMLU = {
    "biology": ("college_biology", "high_school_biology"),
    "chemistry": ("college_chemistry", "high_school_chemistry"),
    "computer science": (
        "college_computer_science",
        "computer_security",
        "high_school_computer_science",
        "machine_learning",
    ),
    "economics and business": (
        "business_ethics",
        "econometrics",
        "high_school_macroeconomics",
        "high_school_microeconomics",
        "management",
        "marketing",
        "professional_accounting",
    ),
    "engineering": ("electrical_engineering",),
    "history": (
        "high_school_european_history",
        "high_school_us_history",
        "high_school_world_history",
        "prehistory",
    ),
    "legal": ("international_law", "jurisprudence", "professional_law"),
    "math": (
        "abstract_algebra",
        "college_mathematics",
        "elementary_mathematics",
        "high_school_mathematics",
        "high_school_statistics",
    ),
    "medical": (
        "anatomy",
        "clinical_knowledge",
        "college_medicine",
        "human_aging",
        "medical_genetics",
        "nutrition",
        "professional_medicine",
        "virology",
    ),
    "other": ("global_facts", "miscellaneous"),
    "philosophy": (
        "formal_logic",
        "logical_fallacies",
        "moral_disputes",
        "moral_scenarios",
        "philosophy",
        "world_religions",
    ),
    "physics": ("astronomy", "college_physics", "conceptual_physics", "high_school_physics"),
    "politics and society": (
        "high_school_geography",
        "high_school_government_and_politics",
        "human_sexuality",
        "public_relations",
        "security_studies",
        "sociology",
        "us_foreign_policy",
    ),
    "psychology": ("high_school_psychology", "professional_psychology"),
}
_MMLU_PRO = {
    "biology": ("biology",),
    "chemistry": ("chemistry",),
    "computer science": ("computer science",),
    "economics and business": ("business", "economics"),
    "engineering": ("engineering",),
    "history": ("history",),
    "legal": ("law",),
    "math": ("math",),
    "medical": ("health",),
    "other": ("other",),
    "philosophy": ("philosophy",),
    "physics": ("physics",),
    "psychology": ("psychology",),
}
_GPQA = {
    "biology": ("Genetics", "Molecular Biology"),
    "chemistry": (
        "Analytical Chemistry",
        "Chemistry (general)",
        "Inorganic Chemistry",
        "Organic Chemistry",
        "Physical Chemistry",
    ),
    "physics": (
        "Astrophysics",
        "Condensed Matter Physics",
        "Electromagnetism and Photonics",
        "High-energy particle physics",
        "Optics and Acoustics",
        "Physics (general)",
        "Quantum Mechanics",
        "Relativistic Mechanics",
        "Statistical Mechanics",
    ),
}
SUBJECTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        # The longer start first: the first that fits is taken.
        "mmlu_pro_": _by_subject(_MMLU_PRO),
        "mmlu_": _by_subject(_MMLU),
        "gpqa_": _by_subject(_GPQA),
    }
)
"""Domain of each subject, by the start of the data set's name."""
