"""A record is shown both ways; what cannot be run is unknown, and neither shown nor gone."""

from pathlib import Path

import pytest
from tests.check.hunting.corpus.conftest import EXAMPLES, SCRIPT, Corpus

from kvproof.check.hunting.corpus.both_ways import SAVED_RUN, Outcome, Showing, showings, shown
from kvproof.check.hunting.corpus.both_ways import SCRIPT as BY_SCRIPT
from kvproof.check.hunting.corpus.record import read_all


def all_showings(folder: Path, every_release: bool = False, checkout: Path | None = None) -> list[Showing]:
    (fault,) = read_all(folder / "corpus")
    return showings(fault, folder, every_release, checkout)


def test_script_and_saved_run_are_shown_in_a_bad_and_in_a_good_release(corpus: Corpus) -> None:
    assert [(one.by, one.release, one.expected.value) for one in all_showings(corpus())] == [
        (BY_SCRIPT, "0.23.0", "shown"),
        (BY_SCRIPT, "0.24.0", "gone"),
        (SAVED_RUN, "0.23.0", "shown"),
        (SAVED_RUN, "0.24.0", "gone"),
    ]
    assert len(all_showings(corpus(), every_release=True)) == 6


def test_a_record_without_files_is_shown_by_nothing(corpus: Corpus) -> None:
    folder = corpus(
        (f'script = "{SCRIPT}"', 'script = ""'), ('trace = "f8-a-block-freed-twice-in-one-call"', 'trace = ""')
    )
    assert all_showings(folder) == []


WITHOUT_RELEASES = (
    ('engine = "vllm"', 'engine = "owner/name"'),
    ('trace = "f8-a-block-freed-twice-in-one-call"', 'trace = ""'),
)


@pytest.mark.parametrize(
    ("text", "outcome", "words"),
    [
        ("import sys, here\nsys.exit(f'the fault shows in {sys.argv[1]}')", "shown", "the fault shows in"),
        ("print('nothing')", "gone", "nothing"),
        ("raise ValueError('not mine')", "unknown", "ValueError: not mine"),
        ("import os\nos.kill(os.getpid(), 9)", "unknown", "was ended by signal 9"),
        (
            "import sys\nprint('usage: python SCRIPT CHECKOUT', file=sys.stderr)\nsys.exit(2)",
            "unknown",
            "usage: python",
        ),
        ("import os\nos._exit(7)", "unknown", "ended with exit code 7"),
    ],
)
def test_a_script_shows_a_fault_by_exit_code_1_and_by_nothing_else(
    corpus: Corpus, text: str, outcome: str, words: str
) -> None:
    folder = corpus(*WITHOUT_RELEASES)
    (folder / "reproductions" / SCRIPT).write_text(text)
    (folder / "reproductions" / "here.py").write_text("")  # what several scripts share
    bad = all_showings(folder, checkout=folder)[0]
    done = shown(bad)
    assert done.outcome == outcome
    assert words in done.text


def test_an_engine_without_releases_needs_a_checkout(corpus: Corpus) -> None:
    done = shown(all_showings(corpus(*WITHOUT_RELEASES))[0])
    assert done.outcome is Outcome.UNKNOWN
    assert "--checkout" in done.text


def test_a_release_that_cannot_be_had_is_unknown(corpus: Corpus) -> None:
    (one, *_) = all_showings(corpus(('engine = "vllm"', 'engine = "no-engine"')))
    assert shown(one).outcome is Outcome.UNKNOWN


@pytest.mark.engine
def test_a_record_of_vllm_is_shown_both_ways(corpus: Corpus) -> None:
    others = (
        ('bad = ["0.22.0", "0.23.0"]', 'bad = ["0.30.0"]'),
        ('good = ["0.24.0"]', 'good = ["0.31.0"]'),
        ("lists-agree", "sharing-equal"),
        ("vllm-v1-pool", "vllm-v1"),
        ("f8-a-block-freed-twice-in-one-call", "v1-a-salt-equals-an-adapters-name"),
    )
    (fault,) = read_all(corpus(*others) / "corpus")
    found = [shown(one) for one in showings(fault, EXAMPLES, every_release=False)]
    assert [one.outcome.value for one in found] == ["shown", "gone", "shown", "gone"]
