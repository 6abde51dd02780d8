import pytest

from eldr_runtime.subject_domains import SUBJECTS, domain_of


@pytest.mark.parametrize(
    ("dataset", "category", "domain"),
    [
        ("mmlu_dev", "abstract_algebra", "math"),
        ("mmlu_test", "formal_logic", "philosophy"),
        ("mmlu_validation", "us_foreign_policy", "politics and society"),
        ("mmlu_pro_test", "law", "legal"),
        ("mmlu_pro_validation", "health", "medical"),
        ("gpqa_diamond", "Astrophysics", "physics"),
        ("gpqa_extended", "Organic Chemistry", "chemistry"),
        ("sorry_bench_base", "45", "safety"),
        ("tulu3_persona_if", "instruction-following", "instruction following"),
        ("Polyglot-or-Not_Fact-Completion", "fact_checking", "fact checking"),
    ],
)
def test_subjects_of_known_benchmarks(dataset: str, category: str, domain: str) -> None:
    assert domain_of(dataset, category) == domain


@pytest.mark.parametrize("dataset", ["", "my_chats", "mmlu", "gpqa"])
def test_a_data_set_it_does_not_know_keeps_its_category(dataset: str) -> None:
    assert domain_of(dataset, "anatomy") == "anatomy"


def test_a_subject_of_another_benchmark_keeps_its_name() -> None:
    # "Genetics" is a subject of GPQA, "genetics" of none.
    assert domain_of("mmlu_test", "Genetics") == "Genetics"
    assert domain_of("gpqa_main", "genetics") == "genetics"
    # mmlu_pro_ is no part of mmlu_: its subjects are not those of MMLU.
    assert domain_of("mmlu_pro_test", "anatomy") == "anatomy"


def test_the_benchmarks_are_whole() -> None:
    assert {prefix: len(subjects) for prefix, subjects in SUBJECTS.items()} == {
        "mmlu_pro_": 14,
        "mmlu_": 57,
        "gpqa_": 16,
    }
