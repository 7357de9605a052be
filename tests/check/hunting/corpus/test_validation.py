"""Each way in which a record can disagree with its files, with kvproof or with itself is named."""

import pytest
from tests.check.hunting.corpus.conftest import EXAMPLES, Corpus

from kvproof.check.hunting.corpus.record import read_all
from kvproof.check.hunting.corpus.validation import problems

REPORT = """[report]
title = "A title"
expected = "This."
observed = "That."
cause = "A line."
suggestion = "Another line."
"""
MISSED = '[missed]\ncause = "no subject"\ntext = "Nothing drives it."\n'


def found(corpus: Corpus, *changes: tuple[str, str], name: str = "vllm-freed-twice") -> list[str]:
    folder = corpus(*changes, name=name)
    return problems(read_all(folder / "corpus"), folder)


def test_a_valid_record_has_no_problem(corpus: Corpus) -> None:
    assert found(corpus) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('class = "reference-counts"', 'class = "counts"', "no class is named counts"),
        ("below zero.", "below zero", "mechanism is a sentence"),
        ("get one block.", "get one block", "harm is a sentence"),
        ("vllm-project/vllm#42571", "42571", "is no owner/name#number"),
        ('good = ["0.24.0"]', 'good = ["0.23.0"]', "0.23.0 cannot be bad and good"),
        ('"0.22.0", "0.23.0"', '"0.23.0", "0.22.0"', "bad is in the order of the releases"),
        ('good = ["0.24.0"]', "good = []", "it is repaired, so name a newer release without it"),
        ('state = "repaired"', 'state = "unreported"', "has a [report]"),
        ('links = ["vllm-project/vllm#42571"]\nstate = "repaired"', 'links = []\nstate = "reported"', "name the issue"),
        ('subject = "vllm-v1-pool"', 'subject = "vllm-pool"', "no subject is named vllm-pool"),
        ('property = "lists-agree"', 'property = "lists"', "no property is named lists"),
        ('subject = "vllm-v1-pool"', 'subject = ""', "a saved run has a subject and a property"),
        ('subject = "vllm-v1-pool"', 'subject = ""', "so say why in [missed]"),
        ('script = "vllm_salt', 'script = "vllm_sold', "there is no reproductions/vllm_sold"),
        ('trace = "f8', 'trace = "f7', "cannot read"),
        ('property = "lists-agree"', 'property = "hit-found"', "is a run of vllm-v1-pool that breaks lists-agree"),
        ('bad = ["0.22.0", "0.23.0"]', 'bad = ["0.22.0"]', "shows it in 0.23.0, which is not in bad"),
    ],
)
def test_a_problem_is_named(corpus: Corpus, old: str, new: str, problem: str) -> None:
    assert any(problem in one for one in found(corpus, (old, new)))


def test_the_reason_no_subject_belongs_to_records_without_one_alone(corpus: Corpus) -> None:
    story = 'story = "The call is `free_blocks`."\n'
    assert any("'no subject' where" in one for one in found(corpus, (story, story + MISSED)))


def test_a_report_belongs_to_unreported_faults_alone(corpus: Corpus) -> None:
    story = 'story = "The call is `free_blocks`."\n'
    assert any("has a [report]" in one for one in found(corpus, (story, story + REPORT)))
    unreported = ('state = "repaired"', 'state = "unreported"')
    assert found(corpus, (story, story + REPORT), unreported) == []


def test_an_id_has_small_letters_digits_and_hyphens(corpus: Corpus) -> None:
    assert any("an id has" in one for one in found(corpus, name="vllm_Freed"))


def test_every_trace_and_every_script_belongs_to_a_record(corpus: Corpus) -> None:
    folder = corpus()
    (folder / "traces" / "other.json").write_text("{}")
    (folder / "reproductions" / "other.py").write_text("")
    (folder / "reproductions" / "on_vllm.py").write_text("")
    assert problems(read_all(folder / "corpus"), folder) == [
        "reproductions/other.py: no record names this script",
        "traces/other.json: no record names this run",
    ]


def test_two_records_have_no_alias_in_common(corpus: Corpus) -> None:
    corpus()
    assert "F8: several records have this alias" in found(corpus, name="vllm-other")


def test_the_corpus_of_kvproof_is_valid() -> None:
    assert problems(read_all(EXAMPLES / "corpus"), EXAMPLES) == []
