"""A finding is reported and can be replayed, whatever features its run has and whichever later step fails.

The subjects declare every capability, take everything, and fail in one call: so every run of a few operations refutes.
"""

import errno
from collections.abc import Callable
from dataclasses import fields, replace
from math import gcd
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.conformance import run_conformance
from kvproof.check.counterexample import keeping
from kvproof.check.counterexample import store as counterexample_store
from kvproof.check.counterexample.store import load, save_raw
from kvproof.check.counterexample.trace_schema import config_of, operations_of
from kvproof.check.hunting import findings
from kvproof.check.hunting.findings import saving_of
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.block_events import BlockEvent
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.features import FEATURES
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admission, Assumption, Config, Observation
from kvproof.check.protocol.pool import PoolEvent
from kvproof.check.protocol.store import MISS, NO_SLOT, StoreConfig, StoreObservation
from kvproof.check.runs import run as running
from kvproof.check.runs import store
from kvproof.check.runs.run import RunOptions, run_stages
from kvproof.check.search import random_walk, suppression
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.search.suppression import features_of
from kvproof.reports.document import read
from kvproof.reports.result import Check, Result
from kvproof.spec.text.identity import Image, Key
from kvproof.spec.verdict import Exit, Verdict

DECLARED: dict[str, Any] = {one.name: True for one in fields(Capabilities) if one.type is bool}
DECLARED |= {"has_admission_query": True, "runs_ahead": False, "forks_itself": False}
EVERY = Capabilities(async_steps=1, **DECLARED)


class Willing:
    """Takes every configuration and has no block in use. `failing` names the call that raises."""

    name = "willing"
    capabilities = EVERY
    assumptions: tuple[Assumption, ...] = ()
    failing = ""

    def open(self, config: Config) -> None:
        self.config = config

    def observe(self) -> Observation:
        return Observation({}, (self.config.num_gpu_blocks, self.config.num_host_blocks))

    def reset_cache(self) -> bool:
        return True

    def block_events(self) -> list[BlockEvent]:
        return []

    def block_names(self, tokens: list[int], key: Key, images: tuple[Image, ...]) -> list[str]:
        return [str(tokens[: at + 1]) for at in range(0, len(tokens), gcd(*self.config.block_sizes))]

    def _call(self, *arguments: Any) -> Any:
        """Any other call that does nothing."""

    def _fail(self, *arguments: Any) -> Any:
        raise RuntimeError("planted")


class WillingManager(Willing):
    new = new_elsewhere = new_encoder = new_prefix = grow = forget = free = preempt = step_scheduled = step_done = (
        Willing._call
    )
    reserve = fork = swap_out = swap_in = Willing._call
    admit = Willing._fail

    def hits(self, group: int) -> int:
        return 0

    def common_blocks(self, seqs: list[int]) -> list[int]:
        return []

    def can_admit(self, group: int) -> Admission:
        return Admission.OK

    can_append = can_swap_out = can_swap_in = can_admit


class WillingScheduler(Willing):
    add_request = abort = launch = complete = elsewhere = arrived = Willing._call
    pause = open_session = feed = close = Willing._call
    schedule = Willing._fail

    def ended(self) -> dict[int, str]:
        return {}

    being_sent = delivered = each_ended = ended

    def stores_to_come(self) -> list[list[int]]:
        return []


class WillingPool(Willing):
    share = free = cache = Willing._call
    allocate = Willing._fail

    def find(self, pages: list[int]) -> list[int]:
        return []

    def events(self) -> list[PoolEvent]:
        return []


def hunted(make: Callable[[], Any], folder: Path, seed: int = 1, shrink: float = 0.0, **fixed: Any) -> Result:
    """The result of a run until the first finding; its exit code must say that the subject is refuted."""
    options = RunOptions("hunt", "willing", seed, 30.0, folder, None)
    saving = saving_of(options, make)
    saving.seconds, saving.fixed = shrink, fixed
    stage = walker_stage(make(), saving, 100.0, saving.walk(10_000))
    assert run_stages(options, [stage], make()) is Exit.REFUTED
    return read(folder / "result.json", Result)


def refuted(result: Result) -> Check:
    (found,) = (check for check in result.checks if check.verdict is Verdict.REFUTED)
    return found


def is_refuted_again(make: Callable[[], Any], path: Path) -> bool:
    trace = load(path)
    return finding_of(make(), config_of(trace, path), operations_of(trace, path)) is not None


class WillingConnector(WillingScheduler):
    capabilities = replace(EVERY, connectors=("offloading",), async_steps=0)
    copied = reset_caches = Willing._call


class WillingStore(Willing):
    finish = touch = advance = begin_asked = end_store = end_load = notice = clear = Willing._call
    begin_store = Willing._fail

    def observe(self) -> Any:
        return StoreObservation({}, self.config.num_gpu_blocks)

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        return [MISS] * len(keys)

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        return [NO_SLOT] * len(keys)

    def evict(self, keys: list[int]) -> list[int]:
        return []


ON: dict[str, Any] = {"group_size": 2, "keys": 3, "images": True, "caching": True, "window": 3, "num_host_blocks": 4}
ON |= {"lookahead": 2, "chunked": True, "watermark": 0.1, "num_gpu_blocks": 16, "block_size": 1}
GROUPS = ON | {"kv_groups": ("full", "window")}
LOCAL_GROUPS = ON | {"kv_groups": ("full", "local"), "window": None, "local_chunk": 3}
PREFIXES = ON | {"prefixes": True, "caching": False, "window": None}
LOADS = ON | {"loads": 1, "group_size": 1, "num_host_blocks": 0, "cross": False, "prefixes": False}
RANKS = ON | {"window": None, "block_size": 4, "ranks": 2}
ASYNC = {"transfers": False, "async_steps": 1, "num_host_blocks": 0, "group_size": 1}
CASES: list[tuple[type[Willing], list[dict[str, Any]], set[str]]] = [
    (
        WillingManager,
        [ON | {"cross": True}, GROUPS, LOCAL_GROUPS, PREFIXES, LOADS, RANKS],
        {feature.field for feature in FEATURES},
    ),
    (
        WillingScheduler,
        [ON | {"cross": True, "transfers": True, "async_steps": 0}, GROUPS | ASYNC, LOCAL_GROUPS | ASYNC],
        {*(feature.field for feature in FEATURES), "transfers", "async_steps"} - {"prefixes", "loads", "ranks"},
    ),
    (WillingConnector, [{"connector": "offloading"}], {"connector"}),
    (WillingPool, [{"caching": True}], {"caching"}),
    (WillingStore, [{}], {"store"}),
]


@pytest.mark.parametrize(
    ("make", "configs", "expected"), CASES, ids=["manager", "scheduler", "connector", "pool", "store"]
)
def test_every_step_is_done_with_a_finding_whatever_features_it_has(
    make: type[Willing], configs: list[dict[str, Any]], expected: set[str], tmp_path: Path
) -> None:
    reached: set[str] = set()
    for seed in range(40):
        folder = tmp_path / str(seed)
        result = hunted(make, folder, seed, **configs[seed % len(configs)])
        assert result.messages == []
        path = folder / str(refuted(result).trace)
        names = {one.name for one in path.parent.iterdir()}
        assert names == {path.name, f"{path.stem}.html", f"test_{path.stem.replace('-', '_')}.py"}
        trace = load(path)
        config, operations = config_of(trace, path), operations_of(trace, path)
        assert len(trace.steps) == len(operations)
        assert is_refuted_again(make, path)
        reached |= {*features_of(config, operations), *(["async_steps"] * getattr(config, "async_steps", 0))}
        reached |= {"store"} if isinstance(config, StoreConfig) else set()
        reached |= {"connector"} if getattr(config, "connector", "") else set()
        reached |= {"transfers" for name, *arguments in operations if name == "add" and len(arguments) > 7}
        if reached >= expected:
            return
    assert reached >= expected


# A later step fails -------------------------------------------------------------------------------------------------

SMALL = {"block_size": 1, "num_gpu_blocks": 2}


def broken(*arguments: Any, **options: Any) -> Any:
    raise TypeError("planted in kvproof")


def full(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("where", "name", "step"),
    [
        (keeping, "confirm", "the replay"),
        (findings.Saving, "_shortest", "shrinking"),
        (keeping, "raw_trace", "the conversion to data"),
        (keeping, "make_trace", "the description of the steps"),
        (keeping, "save_trace", "saving"),
        (keeping, "save_test", "the regression test"),
        (keeping, "draw", "the page"),
    ],
)
def test_a_step_that_fails_is_reported_and_the_finding_is_too(
    where: Any, name: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, broken)
    found = refuted(hunted(WillingManager, tmp_path, **SMALL))
    assert (found.id, found.property) == ("walker/admission-sound", "admission-sound")
    (raw,) = (tmp_path / "crashes").glob("raw-admission-sound-1-*.json")
    sentence, failure, where_raw = found.text.split("\n")
    assert sentence.endswith("raised RuntimeError: planted")
    assert failure == f"{step} failed by a fault of kvproof: TypeError: planted in kvproof"
    assert where_raw == f"the run as it was found is in {raw}"
    monkeypatch.undo()
    assert is_refuted_again(WillingManager, raw)
    assert is_refuted_again(WillingManager, tmp_path / str(found.trace))
    assert "planted in kvproof" in (tmp_path / "fault.log").read_text()


@pytest.mark.parametrize(("where", "name"), [(findings, "features_of"), (findings, "is_duplicate")])
def test_the_features_of_a_finding_are_not_needed_to_report_it(
    where: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, broken)
    found = refuted(hunted(WillingManager, tmp_path, **SMALL))
    assert is_refuted_again(WillingManager, tmp_path / str(found.trace))


@pytest.mark.parametrize(("num_blocks_max", "is_drawn"), [(100_000, True), (0, False)])
def test_a_finding_is_saved_without_a_page_if_the_page_would_be_too_large(
    num_blocks_max: int, is_drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counterexample_store, "DRAWN_BLOCKS_MAX", num_blocks_max)
    path = tmp_path / str(refuted(hunted(WillingManager, tmp_path, **SMALL)).trace)
    assert path.exists()
    assert path.with_suffix(".html").exists() == is_drawn


def test_a_walk_ends_with_a_finding_that_cannot_be_compared_with_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suppression, "features_of", broken)
    options = random_walk.WalkOptions(known=(("admission-sound", "admit RuntimeError: admit raised RuntimeError", ()),))
    done = random_walk.walk(MANAGERS, WillingManager(), 1, max_operations=1000, seconds=10, options=options)
    assert done.finding is not None


@pytest.mark.parametrize("name", [*store.REPORTS])
def test_a_report_that_cannot_be_rendered_keeps_no_other_from_being_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(store.REPORTS, name, broken)
    result = hunted(WillingManager, tmp_path, **SMALL)
    assert refuted(result).trace is not None
    message = f"{name} failed by a fault of kvproof, not of the subject: TypeError: planted in kvproof"
    assert result.messages == [message]
    names = {one.name for one in tmp_path.iterdir()} - {".lock"}
    assert names == {"crashes", "result.json", *store.REPORTS} - {name}


def test_a_report_that_cannot_be_printed_does_not_change_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "print_report", broken)
    hunted(WillingManager, tmp_path, **SMALL)
    assert f"planted in kvproof; the result is in {tmp_path / 'result.json'}" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "has_trace"), [("save_raw", True), ("save_trace", False), ("draw", True)])
def test_a_disk_that_is_full_loses_no_finding(
    name: str, has_trace: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, name, full)
    found = refuted(hunted(WillingManager, tmp_path, **SMALL))
    assert (found.trace is not None) is has_trace
    assert ("This run is not saved: no space is left" in found.text and "admit(group" in found.text) is not has_trace


def test_a_run_that_is_interrupted_while_it_shrinks_a_finding_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(findings.Saving, "_shortest", interrupted)
    result = hunted(WillingManager, tmp_path, **SMALL)
    assert result.run.is_complete is False
    assert is_refuted_again(WillingManager, tmp_path / str(refuted(result).trace))


def test_a_run_that_no_trace_can_hold_is_written_as_text(tmp_path: Path) -> None:
    found = Counterexample(Config(), [("new", 1, (1,), {object})], Finding("total-calls", "planted \ud800"))
    path = save_raw(tmp_path, "willing", found, "walker", 7, 0)
    assert path.name == "raw-total-calls-7-0.txt"
    assert path.read_text().splitlines() == [
        "willing",
        "walker, seed 7",
        "planted \\ud800",
        str(Config()),
        "('new', 1, (1,), {<class 'object'>})",
    ]


class Surrogate(WillingManager):
    """Its errors have half of a surrogate pair."""

    def admit(self, *arguments: Any) -> Any:
        raise RuntimeError("planted \ud800")


def test_a_finding_with_a_text_that_no_file_can_hold_is_reported(tmp_path: Path) -> None:
    found = refuted(hunted(Surrogate, tmp_path, **SMALL))
    assert found.text.endswith("raised RuntimeError: planted \\ud800")
    assert found.trace is not None


def test_the_conformance_test_reports_a_finding_that_cannot_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "make_trace", broken)
    with pytest.raises(AssertionError) as caught:
        run_conformance(WillingManager, seconds=2, config=SMALL, crashes=tmp_path, isolation=False)
    assert "admission-sound is refuted for" in str(caught.value)
    assert "the description of the steps failed by a fault of kvproof" in str(caught.value)
