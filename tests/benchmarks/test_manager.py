"""The side-by-side benchmark: that each phase is what its name says, and that a goal is judged at its bound."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import driven, manager
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.vllm.v0_loader import Manager
from kvproof.impl import SequenceStatus

OURS, THEIRS, GOALS = driven.OURS, driven.THEIRS, manager.GOALS
NUM_SEQS, PROMPT_BLOCKS = 3, 2
SMALL = manager.Shape(
    num_seqs=NUM_SEQS,
    prompt_tokens=PROMPT_BLOCKS * driven.BLOCK_SIZE,
    num_blocks=64,
    num_lives=2,
    num_table_reads=1,
    num_constructed_blocks=200_000,
)
PROMPTS = [[seq * 100 + token for token in range(SMALL.prompt_tokens)] for seq in range(NUM_SEQS)]
EVERY_MODE = pytest.mark.parametrize("caching", [False, True])
PHASES_OF_BOTH = {*GOALS, "end of a prompt's step", "end of a token's step", "append of the forked"}


class Recording:
    """Our manager, with each call and its answer kept under its name."""

    def __init__(self, **options: Any) -> None:
        self.inner = driven.ours().make(**options)
        self.answers: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.inner, name)

        def recorded(*arguments: Any) -> Any:
            answer = method(*arguments)
            self.answers.append((name, answer))
            return answer

        return recorded


def recorded_phases(caching: bool) -> dict[str, list[tuple[str, Any]]]:
    """The calls that led to each phase's figure, those not timed included."""
    load = manager.Load(driven.Driven(OURS, Recording, SequenceStatus), caching, SMALL)
    found = {}
    for phase, _ in load.life(PROMPTS):
        found[phase], load.manager.answers = load.manager.answers, []
    return found


@EVERY_MODE
def test_a_life_has_every_phase_and_leaves_nothing_behind(caching: bool) -> None:
    load = manager.Load(driven.ours(), caching, SMALL)
    costs = dict(load.life(PROMPTS))
    assert set(costs) == PHASES_OF_BOTH | ({"look a prompt up"} if caching else set())
    assert min(costs.values()) > 0
    assert (load.manager.tables, load.manager.get_num_free_gpu_blocks()) == ({}, SMALL.num_blocks)


@EVERY_MODE
def test_the_appends_between_the_middles_of_two_blocks_open_one_and_copy_nothing(caching: bool) -> None:
    appends = [answer for name, answer in recorded_phases(caching)["append a token"] if name == "append_slots"]
    # Half a block is not timed, a whole one is; each by every sequence.
    assert appends == [[]] * (24 * NUM_SEQS)


@EVERY_MODE
def test_a_round_trip_moves_all_blocks_out_and_in(caching: bool) -> None:
    trips = [(name, len(answer)) for name, answer in recorded_phases(caching)["swap out and in"]]
    num_blocks = PROMPT_BLOCKS + 2  # 24 tokens more than whole blocks
    assert trips == [("swap_out", num_blocks), ("swap_in", num_blocks)] * NUM_SEQS


@EVERY_MODE
def test_the_first_append_after_a_fork_is_the_one_that_copies(caching: bool) -> None:
    phases = recorded_phases(caching)
    first = [answer for name, answer in phases["first append after a fork"] if name == "append_slots"]
    assert [len(pairs) for pairs in first] == [1] * NUM_SEQS
    assert [answer for name, answer in phases["append of the forked"] if name == "append_slots"] == [[]] * NUM_SEQS


def test_the_children_append_first_and_then_the_forked() -> None:
    appended: list[int] = []

    class Watched(Recording):
        def append_slots(self, seq: driven.LightSequence, num_lookahead_slots: int) -> Any:
            appended.append(seq.seq_id)
            return self.inner.append_slots(seq, num_lookahead_slots)

    dict(manager.Load(driven.Driven(OURS, Watched, SequenceStatus), False, SMALL).life(PROMPTS))
    assert appended[-2 * NUM_SEQS :] == [3, 4, 5, 0, 1, 2]


def test_every_prompt_of_every_life_is_new_to_the_cache() -> None:
    looked_up: list[int] = []

    class LookedUp(Recording):
        def reset_prefix_cache(self) -> bool:
            looked_up.extend(answer for name, answer in self.answers if name == "get_num_cached_tokens")
            self.answers.clear()
            return bool(self.inner.reset_prefix_cache())

    manager.phases([driven.Driven(OURS, LookedUp, SequenceStatus)], True, SMALL)
    # Each prompt is looked up before it is admitted; each child later, with all blocks computed but the one begun.
    lives = SMALL.num_lives + 1
    assert sorted(looked_up) == [0] * NUM_SEQS * lives + [3 * driven.BLOCK_SIZE] * NUM_SEQS * lives


def test_a_manager_that_keeps_blocks_is_named() -> None:
    class Leaking(Recording):
        def free(self, seq: driven.LightSequence) -> None:
            if seq.seq_id:
                self.inner.free(seq)

    load = manager.Load(driven.Driven("leaky", Leaking, SequenceStatus), False, SMALL)
    with pytest.raises(RuntimeError, match="leaky still holds blocks"):
        dict(load.life(PROMPTS))


def figures(ratio: float, **other: float) -> dict[str, dict[str, float]]:
    return {phase: {OURS: 2.0, THEIRS: 2.0 * other.get(phase, ratio)} for phase in GOALS}


def test_a_goal_is_met_at_its_bound_and_missed_below() -> None:
    made = {OURS: {"seconds": 0.3, "megabytes": 200.0}}
    swap = {"swap out and in": 200.0}
    reached = {goal.name: goal.is_met for goal in manager.goals(figures(8.0, **swap), made)}
    assert reached == dict.fromkeys((*GOALS, "geometric mean of these", "construction"), True)
    # (2.9^6 * 199.9)^(1/7) = 5.31
    made = {OURS: {"seconds": 0.31, "megabytes": 200.0}}
    reached = {
        goal.name: goal.is_met for goal in manager.goals(figures(2.9, **swap | {"swap out and in": 199.9}), made)
    }
    assert reached == dict.fromkeys((*GOALS, "geometric mean of these", "construction"), False)


def test_without_the_other_manager_no_ratio_is_claimed() -> None:
    costs = {phase: {OURS: 2.0} for phase in GOALS}
    reached = manager.goals(costs, {OURS: {"seconds": 0.1, "megabytes": 201.0}})
    assert [goal.is_met for goal in reached] == [None] * (len(GOALS) + 1) + [False]
    assert reached[0] == manager.Goal("allocate a prompt", "3 times faster", "", None)


def test_sources_that_cannot_be_had_are_one_line_that_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise EngineError("no package index could be reached")

    monkeypatch.setattr(driven, "import_manager", fail)
    monkeypatch.setattr(download, "add", fail)
    found, missing = driven.managers()
    assert [one.name for one in found] == [OURS]
    assert missing == (
        "vLLM 0.9.2 is left out: no package index could be reached "
        "(`kvproof engines add vllm==0.9.2` brings its sources in)"
    )


def test_sources_that_are_not_here_are_brought_in(monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[str] = []

    def import_brought(version: str) -> Manager:
        if f"vllm=={version}" not in brought:
            raise EngineError("not here")
        return Manager(Recording, SequenceStatus, 2)

    monkeypatch.setattr(driven, "import_manager", import_brought)
    monkeypatch.setattr(download, "add", brought.append)
    found, missing = driven.managers()
    assert ([one.name for one in found], brought, missing) == ([OURS, THEIRS], ["vllm==0.9.2"], "")


def test_each_use_of_a_loop_has_code_of_its_own() -> None:
    assert driven.own_copy(driven.call_each).__code__ is not driven.call_each.__code__
    assert driven.own_copy(driven.call_each)([].append, [1, 2]) >= 0


def test_the_clock_and_the_loop_are_taken_off() -> None:
    clock = driven.Clock()
    clock.nanoseconds, clock.turn_nanoseconds = 1e12, 0.0
    assert clock.each(len, [()]) == 0.001  # the least that is ever said


def test_a_group_gives_its_sequences_by_status() -> None:
    waiting = driven.LightSequence(1, [1], SequenceStatus.WAITING)
    running = driven.LightSequence(2, [1], SequenceStatus.RUNNING)
    group = driven.LightGroup("1", [waiting, running])
    assert group.get_seqs(SequenceStatus.RUNNING) == [running]
    assert group.get_seqs() == [waiting, running]


def test_a_manager_is_made_in_a_process_of_its_own() -> None:
    made = manager.construction([driven.ours()], True, SMALL)[OURS]
    # 200,000 ids in a deque, 200,000 counts, contents and times: some 10 MB.
    assert 2 < made["megabytes"] < 60
    assert 0 < made["seconds"] < 10


def test_the_command_writes_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "BENCHMARKS", {"one": lambda: {"figure": 1}, "other": lambda: {"figure": 2}})
    command.main(["other", "--json", str(tmp_path / "figures.json")])
    written = json.loads((tmp_path / "figures.json").read_text())
    assert list(written) == ["host", "other", "took s", "slowness"]
    assert list(written["slowness"]) == ["other"]
    assert written["slowness"]["other"] > 0
    assert written["other"] == {"figure": 2}
    assert set(written["host"]) == {"processor", "cores", "load", "system", "python"}


def test_a_run_that_is_interrupted_keeps_what_it_has_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted() -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "BENCHMARKS", {"one": lambda: {"figure": 1}, "other": interrupted})
    monkeypatch.setattr(command, "slowness", lambda: 1.0)
    with pytest.raises(KeyboardInterrupt):
        command.main(["--json", str(file := tmp_path / "figures.json")])
    assert json.loads(file.read_text())["one"] == {"figure": 1}


def test_the_command_refuses_a_name_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["managers"])
    known = ", ".join(command.BENCHMARKS)
    assert f"no benchmark is called managers; there are {known}" in capsys.readouterr().err


def test_the_report_names_phases_ratios_and_goals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(manager, "managers", lambda: ([driven.ours()], "vLLM is left out"))
    found = manager.main(SMALL)
    said = capsys.readouterr().out
    assert "vLLM is left out" in said
    assert "goal not compared fork: 3 times faster" in said
    assert set(found) == {"shape", "missing", "naive", "caching"}


@pytest.mark.engine
@EVERY_MODE
def test_both_managers_go_through_the_same_phases(caching: bool) -> None:
    both, missing = driven.managers()
    assert missing == ""
    costs = manager.phases(both, caching, SMALL)
    assert {frozenset(by) for by in costs.values()} == {frozenset({OURS, THEIRS})}
    assert set(costs) == PHASES_OF_BOTH | ({"look a prompt up"} if caching else set())
