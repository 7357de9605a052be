"""In which releases a counterexample holds: which releases are meant, what is said of them, and real ones."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.counterexample.replay import (
    Answer,
    Bisection,
    ReleaseOutcome,
    Replay,
    ReplayStatus,
    bisect,
    releases_of,
)
from kvproof.check.protocol.finding import Finding
from kvproof.check.runs.replay import replay
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading import EngineError
from kvproof.reports.document import write
from kvproof.spec.trace import Trace

TRACE = Trace(
    "vllm-v0==0.6.3",
    "admission-sound",
    "admit(1, 1) raised NoFreeBlocksError",
    {"block_size": 1, "num_gpu_blocks": 3, "window": 1},
    [["new", 1, [1], [0, 0, 0, 0], [None, 0, None], []], ["admit", 1, 1]],
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A counterexample of vLLM."""
    write(tmp_path / "trace.json", TRACE)
    return tmp_path / "trace.json"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Releases that are here, empty ones."""
    for version in ("0.6.0", "0.6.3.post1", "0.6.3", "0.7.0+checkout", "0.10.1", "0.9.2"):
        module = tmp_path / "cache" / f"vllm-{version}" / "vllm" / "core" / "block_manager.py"
        module.parent.mkdir(parents=True)
        module.touch()
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_range_means_the_releases_between_that_are_here_oldest_first(cache: Path) -> None:
    named = ["0.10.1", "0.6.1..0.9.9", "0.5.0"]
    assert releases_of("vllm", named) == ["0.5.0", "0.6.3", "0.6.3.post1", "0.9.2", "0.10.1"]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("0.7.0..0.8.0", "no release of vllm from 0.7.0 to 0.8.0 is downloaded; name a release to download it"),
        ("0.7.0..", "'vllm==' is no release"),
        ("-r x", "'vllm==-r x' is no release"),
    ],
)
def test_an_invalid_release_is_refused(cache: Path, named: str, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        releases_of("vllm", [named])


def test_the_sentence_says_where_it_holds_and_where_not() -> None:
    outcomes = [
        ReleaseOutcome.UNKNOWN,
        ReleaseOutcome.HOLDS,
        ReleaseOutcome.HOLDS,
        ReleaseOutcome.OTHER,
        ReleaseOutcome.GONE,
    ]
    answers = [Answer(f"0.{place}", outcome, "") for place, outcome in enumerate(outcomes)]
    found = Bisection("vllm-v0", "t.json", "read-back", answers)
    assert found.sentence() == "read-back: unknown in 0.0, holds in 0.1 to 0.2, other in 0.3, gone in 0.4"


def test_each_release_runs_in_its_own_process_and_its_findings_are_reported(
    cache: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = {
        "0.6.0": Replay(ReplayStatus.FAILED, "x\ny", Finding("admission-sound", "as it was\nmore")),
        "0.6.3": Replay(ReplayStatus.FAILED, "x", Finding("read-back", "another")),
        "0.9.2": Replay(ReplayStatus.FIXED, "admission-sound holds\nmore"),
        "0.10.1": Replay(ReplayStatus.ERROR, "no such configuration"),
    }
    asked = []

    def answer(path: Path, subject: str, isolation: bool | None) -> Replay:
        asked.append((subject, isolation))
        return done[subject.partition("==")[2]]

    monkeypatch.setattr("kvproof.check.runs.replay.replay", answer)
    command = [
        "bisect",
        "--subject",
        "vllm-v0",
        "--trace",
        str(saved),
        "--json",
        "-",
        "0.6.0..0.6.3",
        "0.9.2",
        "0.10.1",
    ]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 4, ran.output
    assert asked == [(f"vllm-v0=={release}", True) for release in done]
    document = json.loads(ran.stdout)
    assert [(one["release"], one["outcome"], one["text"]) for one in document["releases"]] == [
        ("0.6.0", "holds", "admission-sound: as it was"),
        ("0.6.3", "other", "read-back: another"),
        ("0.9.2", "gone", "admission-sound holds"),
        ("0.10.1", "unknown", "no such configuration"),
    ]
    assert "admission-sound: holds in 0.6.0, other in 0.6.3, gone in 0.9.2, unknown in 0.10.1" in ran.stderr


@pytest.mark.parametrize(
    ("tokens", "outcome", "text"),
    [
        ([0], ReleaseOutcome.GONE, "total-calls holds: 3 operations, and nothing is refuted"),
        ([0, 0], ReleaseOutcome.UNKNOWN, "total-calls is not decided: operation 3 (run) is not possible here"),
    ],
)
def test_a_release_that_cannot_do_what_led_to_the_fault_is_neither_good_nor_bad(
    cache: Path, saved: Path, monkeypatch: pytest.MonkeyPatch, tokens: list[int], outcome: ReleaseOutcome, text: str
) -> None:
    monkeypatch.setattr("kvproof.check.runs.replay.factory_for", lambda name, isolation: BuiltIn)
    trace = replace(TRACE, property="total-calls", config={"block_size": 1, "num_gpu_blocks": 1})
    trace.operations = [["new", 1, [1], tokens], ["admit", 1, 1], ["run", 0]]
    write(saved, trace)
    found = bisect("vllm-v0", saved, ["0.9.2"], replay)
    assert [(one.outcome, one.text) for one in found.releases] == [(outcome, text)]


@pytest.mark.engine
def test_a_prompt_longer_than_its_window_finds_no_blocks_in_any_release(saved: Path) -> None:
    found = bisect("vllm-v0", saved, ["0.6.3", "0.9.2"], lambda path, name: replay(path, name, isolation=True))
    assert [answer.outcome for answer in found.releases] == [ReleaseOutcome.HOLDS, ReleaseOutcome.HOLDS]
