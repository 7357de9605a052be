"""The page of findings is made from the records and the scores, and says first whether a release is affected."""

from typing import Any

from docs.generate.findings import PAGE, RECORDS, page, read_scores, record_page
from tests.check.hunting.corpus.conftest import Corpus
from tests.check.hunting.corpus.conftest import corpus as corpus

from kvproof.check.hunting.corpus.record import read_all


def score(outcome: str, cause: str = "") -> dict[str, Any]:
    row = {"id": "vllm-freed-twice", "outcome": outcome, "cause": cause, "sights": []}
    return {"seeds": [1], "effort": "normal", "records": [row]}


def test_the_page_that_is_committed_is_the_one_that_the_records_give() -> None:
    text = page(read_all(RECORDS), read_scores())
    assert PAGE.read_text(encoding="utf-8") == text, "write it with `python -m docs.generate.findings`"


def test_a_fault_has_a_row_with_its_releases_its_harm_and_its_state(corpus: Corpus) -> None:
    text = page(read_all(corpus() / "corpus"), {})
    link = "[F8: vllm-freed-twice](../examples/corpus/vllm-freed-twice.toml)"
    issue = "[vllm-project/vllm#42571](https://github.com/vllm-project/vllm/issues/42571)"
    assert f"| {link} | 0.22.0 to 0.23.0 | 0.24.0 | Two requests get one block. | repaired, {issue} |\n" in text
    assert "What a hunt finds" not in text


def test_what_is_not_repaired_comes_first(corpus: Corpus) -> None:
    corpus(name="vllm-a-repaired-one")
    folder = corpus(('good = ["0.24.0"]', "good = []"), ('alias = "F8"\n', ""), name="vllm-z-open-one")
    rows = [line for line in page(read_all(folder / "corpus"), {}).splitlines() if line.startswith("| [")]
    assert ["open" in row for row in rows] == [True, False]


def test_the_scores_stand_side_by_side_and_what_was_not_hunted_is_no_miss(corpus: Corpus) -> None:
    faults = read_all(corpus() / "corpus")
    text = page(faults, {"kvproof": score("found"), "naive fuzzer": score("not hunted", "no disk")})
    assert "| class | faults | kvproof | naive fuzzer |\n" in text
    assert "| reference-counts | 1 | 1 | 0 (1 not hunted) |\n" in text
    assert "| all | 1 | 1 | 0 (1 not hunted) |\n" in text
    missed = page(faults, {"kvproof": score("missed", "too rare")})
    assert "Why kvproof misses faults: too rare 1.\n" in missed


def test_tools_with_other_efforts_are_compared_within_the_smallest_one(corpus: Corpus) -> None:
    faults = read_all(corpus() / "corpus")
    for num_operations, num in ((99, 1), (101, 0)):
        large, small = score("found"), score("missed", "too rare") | {"effort": "100"}
        large["records"][0]["sights"] = [{"num_operations": num_operations}]
        text = page(faults, {"kvproof": large, "naive fuzzer": small})
        assert f"kvproof finds {num} of them within 100 operations.\n" in text


def test_a_record_has_a_page_of_its_own(corpus: Corpus) -> None:
    (fault,) = read_all(corpus() / "corpus")
    text = record_page(fault)
    assert text.startswith("# vllm-freed-twice (F8)\n\nA block that one call frees twice")
    assert "| shown in | 0.22.0, 0.23.0 |\n" in text
    assert text.endswith("The call is `free_blocks`.\n")
