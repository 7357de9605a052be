"""`kvproof corpus`: what it prints, and its exit codes."""

import json
from pathlib import Path

import pytest
from tests.check.hunting.corpus.conftest import Corpus
from tests.check.hunting.corpus.conftest import corpus as corpus
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app


def kvproof(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["corpus", *map(str, arguments)])


def test_the_list_has_a_line_for_each_record(corpus: Corpus) -> None:
    done = kvproof("list", "--folder", corpus())
    assert done.exit_code == 0
    first, last = done.output.splitlines()
    assert first.split()[:4] == ["vllm-freed-twice", "0.22.0", "to", "0.23.0"]
    assert last == "1 record."


@pytest.mark.parametrize(
    ("release", "last", "how"),
    [
        (
            "vllm==0.22.1",
            "1 of 1 record may affect vllm==0.22.1: 1 shown before and after it.",
            "shown before and after it",
        ),
        ("vllm==0.22.0", "1 of 1 record may affect vllm==0.22.0: 1 shown.", "shown"),
        ("vllm==0.24.0", "0 of 1 record may affect vllm==0.24.0.", ""),
    ],
)
def test_the_list_says_whether_a_release_is_affected_and_how_that_is_known(
    corpus: Corpus, release: str, last: str, how: str
) -> None:
    done = kvproof("list", "--affects", release, "--folder", corpus())
    assert done.output.splitlines()[-1] == last
    assert how in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "--affects", "vllm"), "NAME==VERSION"),
        (("list", "--affects", "vllm==0.22.0", "--engine", "sglang"), "is no release of sglang"),
        (("list", "--engine", "vlm"), "did you mean vllm?"),
        (("list", "--class", "events"), "no record has both"),
        (("show", "F9"), "no record is named F9"),
        (("show", "F8", "--report"), "is repaired, so its record has no text for a tracker"),
        (("reproduce", "--checkout", "."), "for an engine without releases"),
        (("run", "--seeds", "1,one"), "different numbers with commas"),
        (("run", "--seeds", "1,1"), "different numbers with commas"),
        (("run", "--effort", "much"), "an effort|--effort is"),
    ],
)
def test_a_wrong_argument_is_exit_code_2_with_one_message(
    corpus: Corpus, arguments: tuple[str, ...], message: str
) -> None:
    done = kvproof(*arguments, "--folder", corpus())
    assert done.exit_code == 2
    assert any(one in done.output for one in message.split("|"))


def test_a_record_is_shown_with_all_that_it_says(corpus: Corpus) -> None:
    done = kvproof("show", "F8", "--folder", corpus())
    assert done.exit_code == 0
    for words in ("vllm-freed-twice (F8)", "0.22.0, 0.23.0", "vllm-project/vllm#42571", "The call is `free_blocks`."):
        assert words in done.output


def test_a_record_that_nobody_has_reported_becomes_an_issue(corpus: Corpus) -> None:
    report = '[report]\ntitle = "Freed twice"\nexpected = "E."\nobserved = "O."\ncause = "C."\nsuggestion = "S."\n'
    story = 'story = "The call is `free_blocks`."\n'
    folder = corpus((story, story + report), ('state = "repaired"', 'state = "unreported"'))
    text = kvproof("show", "F8", "--report", "--folder", folder).output
    assert text.startswith("# Freed twice\n")
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["## Versions", "## Reproduction", "## Expected", "## Observed", "## Cause", "## Suggestion"]
    assert "generate_block_hash_extra_keys" in text
    assert "kvproof" not in text.partition("```python")[0]


def test_records_that_disagree_with_their_files_are_exit_code_2(corpus: Corpus) -> None:
    assert kvproof("validate", "--folder", corpus()).exit_code == 0
    done = kvproof("validate", "--folder", corpus(("lists-agree", "hit-found")))
    assert done.exit_code == 2
    assert "breaks lists-agree" in done.output
    assert "1 problem in 1 record" in done.output


def test_what_cannot_be_run_is_exit_code_4_and_stands_in_the_document(corpus: Corpus, tmp_path: Path) -> None:
    folder = corpus(('engine = "vllm"', 'engine = "no-engine"'), ("vllm-v1-pool", "vllm-v1-pool"))
    done = kvproof("reproduce", "--folder", folder, "--json", tmp_path / "runs.json")
    assert done.exit_code == 4
    assert "4 runs: 0 as the records say, 0 otherwise, 4 unknown" in done.output
    runs = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert [one["outcome"] for one in runs] == ["unknown"] * 4


def test_a_release_that_is_newer_than_all_that_were_run_is_not_said_to_be_affected(corpus: Corpus) -> None:
    folder = corpus(('good = ["0.24.0"]', "good = []"))
    last = kvproof("list", "--affects", "vllm==0.99.0", "--folder", folder).output.splitlines()[-1]
    assert last == "1 of 1 record may affect vllm==0.99.0: 1 newer than those that were run."


def test_a_record_that_nothing_shows_is_not_reproduced(corpus: Corpus) -> None:
    done = kvproof("reproduce", "--folder", _bare(corpus))
    assert "1 record, 0 runs" in done.output
    assert done.exit_code == 5


def _bare(corpus: Corpus) -> Path:
    """The folder of a record with neither a script nor a saved run."""
    missed = 'script = ""\nstory = "x"\n[missed]\ncause = "no subject"\ntext = "Nothing drives it."\n'
    lines = 'trace = "f8-a-block-freed-twice-in-one-call"\nscript = "vllm_salt_equals_an_adapters_name.py"\n'
    story = 'story = "The call is `free_blocks`."\n'
    return corpus((lines + story, f'trace = ""\n{missed}'), ('subject = "vllm-v1-pool"', 'subject = ""'))


def test_a_record_that_no_subject_drives_is_missed_and_counted(corpus: Corpus, tmp_path: Path) -> None:
    done = kvproof("run", "--folder", _bare(corpus), "--out", tmp_path / "out", "--json", tmp_path / "score.json")
    assert done.exit_code == 0
    assert "missed: vllm-freed-twice: no subject" in done.output
    assert done.output.splitlines()[-1] == "0 of 1 found (0%)."
    assert json.loads((tmp_path / "score.json").read_text())["records"][0]["outcome"] == "missed"


@pytest.mark.engine
def test_the_score_of_a_fault_of_vllm_is_found_and_is_not_hunted_again(corpus: Corpus, tmp_path: Path) -> None:
    arguments = "run", "--seeds", "1", "--effort", "2000", "--folder", corpus(), "--out", tmp_path / "out"
    done = kvproof(*arguments)
    assert "1 of 1 found (100%)." in done.output
    assert "1 of 1 seen after" in done.output
    again = kvproof(*arguments)
    assert "1 of 1 found (100%)." in again.output
    assert "seen after" not in again.output
