"""The score: what was seen by most seeds is found, and what could not be hunted is no miss."""

from contextlib import closing
from pathlib import Path

import pytest
from tests.check.hunting.corpus.conftest import EXAMPLES, Corpus
from tests.check.hunting.corpus.test_matching import FORKED, saved

from kvproof.check.hunting.corpus.matching import Wanted
from kvproof.check.hunting.corpus.record import read_all
from kvproof.check.hunting.corpus.score import (
    FOUND,
    INTERRUPTED,
    MISSED,
    NOT_HUNTED,
    Hunt,
    HuntResult,
    Sight,
    hunted,
    hunts,
    run,
    scores,
    table,
)
from kvproof.check.hunting.head import Here
from kvproof.check.hunting.store import ResultStore

SIGHT = Sight("vllm-freed-twice", "walker", 17, 0.5)


def planned(corpus: Corpus, *changes: tuple[str, str]) -> tuple[list[Hunt], Path]:
    folder = corpus(*changes)
    return hunts(read_all(folder / "corpus"), folder, (1, 2, 3), "500", None), folder


def test_a_record_is_hunted_in_its_newest_bad_release_once_for_each_seed(corpus: Corpus) -> None:
    found, folder = planned(corpus)
    assert [(one.subject, one.seed) for one in found] == [("vllm-v1-pool==0.23.0", seed) for seed in (1, 2, 3)]
    path = folder / "traces" / "f8-a-block-freed-twice-in-one-call.json"
    assert found[0].wanted == (Wanted("vllm-freed-twice", "lists-agree", str(path), "vllm-v1-pool==0.24.0"),)


def test_records_of_one_release_are_hunted_together(corpus: Corpus) -> None:
    corpus(name="vllm-twin")
    found, _ = planned(corpus, ('alias = "F8"', ""))
    assert len(found) == 3
    assert [one.id for one in found[0].wanted] == ["vllm-freed-twice", "vllm-twin"]


@pytest.mark.parametrize(
    "changes",
    [
        (('subject = "vllm-v1-pool"', 'subject = ""'),),
        (('property = "lists-agree"', 'property = ""'),),
        (('engine = "vllm"', 'engine = "owner/name"'),),
        (('trace = "f8-a-block-freed-twice-in-one-call"', 'trace = ""'),),
    ],
)
def test_what_no_hunt_could_be_matched_with_is_not_hunted(corpus: Corpus, changes: tuple[tuple[str, str], ...]) -> None:
    assert planned(corpus, *changes)[0] == []


@pytest.mark.parametrize(
    ("results", "outcome"),
    [
        ([HuntResult([SIGHT], 17, 1.0), HuntResult([SIGHT], 17, 1.0), HuntResult([], 500, 1.0)], FOUND),
        ([HuntResult([SIGHT], 17, 1.0), HuntResult([], 500, 1.0), HuntResult([], 500, 1.0)], MISSED),
        ([HuntResult([SIGHT], 17, 1.0), HuntResult([], 0, 0.0, "no disk"), HuntResult([], 500, 1.0)], NOT_HUNTED),
        ([HuntResult([SIGHT], 17, 1.0), HuntResult([SIGHT], 9, 0.0, "no disk"), HuntResult([], 0, 0.0, "no")], FOUND),
    ],
)
def test_a_fault_is_found_if_more_than_half_of_the_seeds_see_it(
    corpus: Corpus, results: list[HuntResult], outcome: str
) -> None:
    found, folder = planned(corpus)
    (score,) = scores(read_all(folder / "corpus"), dict(zip(found, results, strict=True)))
    assert score.outcome == outcome


def test_a_miss_has_the_reason_of_its_record(corpus: Corpus) -> None:
    text = 'story = "The call is `free_blocks`."\n'
    missed = text + '[missed]\ncause = "too rare"\ntext = "It is."\n'
    found, folder = planned(corpus, (text, missed))
    (score,) = scores(read_all(folder / "corpus"), dict.fromkeys(found, HuntResult([], 500, 1.0)))
    assert (score.outcome, score.cause) == (MISSED, "too rare")


def test_a_record_whose_saved_run_shows_nothing_in_the_release_is_not_hunted(corpus: Corpus) -> None:
    found, folder = planned(corpus)
    result = HuntResult([], 500, 1.0, silent=("vllm-freed-twice",))
    (score,) = scores(read_all(folder / "corpus"), dict.fromkeys(found, result))
    assert (score.outcome, score.cause) == (NOT_HUNTED, "its saved run shows nothing in vllm-v1-pool==0.23.0")


def test_a_record_that_no_subject_drives_counts_as_missed(corpus: Corpus) -> None:
    text = 'story = "The call is `free_blocks`."\n'
    missed = text + '[missed]\ncause = "no subject"\ntext = "It is."\n'
    _, folder = planned(corpus, ('subject = "vllm-v1-pool"', 'subject = ""'), (text, missed))
    (score,) = scores(read_all(folder / "corpus"), {})
    assert (score.outcome, score.cause) == (MISSED, "no subject")


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ((('engine = "vllm"', 'engine = "owner/name"'),), "needs a checkout of owner/name at 0.23.0"),
        ((('trace = "f8-a-block-freed-twice-in-one-call"', 'trace = ""'),), "it has no saved run"),
    ],
)
def test_a_record_that_a_hunt_might_find_and_that_was_not_hunted_is_no_miss(
    corpus: Corpus, changes: tuple[tuple[str, str], ...], cause: str
) -> None:
    _, folder = planned(corpus, *changes)
    (score,) = scores(read_all(folder / "corpus"), {})
    assert score.outcome == NOT_HUNTED
    assert cause in score.cause


def test_the_last_row_of_the_table_is_the_sum(corpus: Corpus) -> None:
    found, folder = planned(corpus)
    scored = scores(read_all(folder / "corpus"), dict.fromkeys(found, HuntResult([SIGHT], 17, 1.0)))
    assert [(name, counts[FOUND]) for name, counts in table(scored, lambda one: one.fault.engine)] == [
        ("vllm", 1),
        ("all", 1),
    ]


def test_a_result_is_kept_and_one_that_has_a_reason_is_hunted_again(tmp_path: Path) -> None:
    good, bad = (
        Hunt(name, 1, "300", (Wanted("x", "refcount-exact", "x.json"),)) for name in ("kvproof-pool", "kvproof-pool==9")
    )
    done: list[Hunt] = []
    for _ in range(2):
        with closing(ResultStore(tmp_path / "corpus.sqlite")) as store:
            results = run([good, bad], Here(), store, lambda hunt, result: done.append(hunt))
    assert done == [good, bad, bad]
    assert results[good].num_operations >= 300
    assert (results[good].reason, results[good].silent) == ("", ("x",))
    assert results[bad].reason


def test_an_interrupt_leaves_what_is_done_and_the_rest_is_not_hunted(tmp_path: Path) -> None:
    first, second = (Hunt("kvproof-pool", seed, "300", (Wanted("x", "refcount-exact", "x.json"),)) for seed in (1, 2))

    def interrupt(hunt: Hunt, result: HuntResult) -> None:
        raise KeyboardInterrupt

    with closing(ResultStore(tmp_path / "corpus.sqlite")) as store:
        results = run([first, second], Here(), store, interrupt)
        assert (results[first].reason, results[second].reason) == ("", INTERRUPTED)
        assert store.find(first.key) is not None
        assert store.find(second.key) is None


def test_a_hunt_ends_when_all_that_is_looked_for_is_seen(tmp_path: Path) -> None:
    """It needs no release: both subjects are files."""
    bad, good = f"{EXAMPLES}/forty_lines_broken.py:Adapter", f"{EXAMPLES}/forty_lines.py:Adapter"
    run = saved(tmp_path / "forked.json", FORKED)
    done = hunted(Hunt(bad, 1, "100000", (Wanted("leak", "refcount-exact", str(run), good),)))
    assert done.reason == ""
    assert [one.id for one in done.sights] == ["leak"]
    assert done.sights[0].num_operations == done.num_operations < 2_000
