"""What an executor does wrong is a finding: wrong bytes, an exception, no answer, bytes that come late."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from itertools import permutations

import pytest
import torch

from kvproof.check.data_plane.executors import BUILT_IN, Executor
from kvproof.check.data_plane.executors.isolation import ExecutorRaised
from kvproof.check.data_plane.mappings import KINDS, scenario
from kvproof.check.data_plane.memory.layouts import DTYPES, Geometry, Layout, UnknownSetting
from kvproof.check.data_plane.memory.world import Caches, World
from kvproof.check.data_plane.run import harness
from kvproof.check.data_plane.run.harness import run_case
from kvproof.check.data_plane.run.results import CaseResult, CaseStatus, FindingKind
from kvproof.check.data_plane.speed.trial import TimedWork
from kvproof.check.data_plane.steps.moves import Moves, Scenario, Step
from kvproof.check.hosts.interrupt import UserInterrupt, interruptible
from kvproof.check.hosts.time_limit import OutOfTime

CPU = torch.device("cpu")
OURS = ("engine", "block-copy", "index-copy")


def geometry(layout: Layout = Layout.NHD, dtype: str = "float16") -> Geometry:
    return Geometry(layout, dtype, 4, 1 if layout is Layout.LATENT else 2, 16, 2, 12, 9)


def case_with(move: Callable[[Caches, Moves], object], seconds_max: float = 20.0, kind: str = "mixed") -> CaseResult:
    """A case of an executor in this process."""
    executor = Executor("wrong", lambda caches: lambda moves: move(caches, moves))
    return run_case(executor, geometry(), scenario(kind, 0, 12, 9, 4), CPU, step_seconds_max=seconds_max)


def right(caches: Caches, moves: Moves) -> None:
    BUILT_IN["block-copy"].prepare(caches)(moves)


@pytest.mark.parametrize(
    ("name", "layout", "kind"),
    [("engine", layout, kind) for layout in Layout for kind in KINDS]
    + [(name, layout, kind) for name in OURS[1:] for layout in Layout for kind in ("mixed", "beam-search")],
)
def test_right_executors_pass_on_every_layout_and_mapping(name: str, layout: Layout, kind: str) -> None:
    dtype = list(DTYPES)[(KINDS.index(kind) + list(Layout).index(layout)) % len(DTYPES)]
    made = scenario(kind, 1, 12, 9, 4)
    result = run_case(BUILT_IN[name], geometry(layout, dtype), made, CPU)
    assert result.finding is None
    assert (result.status, result.num_steps, result.num_pairs) == (CaseStatus.PASSED, len(made.steps), made.num_pairs)
    assert result.bytes_proven == len(made.steps) * geometry(layout, dtype).num_bytes()
    assert result.bytes_moved == made.num_pairs * geometry(layout, dtype).block_bytes


def test_an_executor_that_exchanges_keys_and_values_of_one_layer_gets_the_origin_of_its_bytes() -> None:
    def wrong(caches: Caches, moves: Moves) -> None:
        right(caches, moves)
        for _, _, target, pairs in moves.lists():
            for _, block in pairs:
                layer = (caches.cpu if target else caches.gpu)[1]
                layer[block] = layer[block].flip(0)

    result = case_with(wrong, kind="one")
    assert result.status is CaseStatus.FAILED
    assert result.finding is not None
    assert result.finding.kind is FindingKind.WRONG_BYTES
    assert result.finding.histogram == {"moved": 8}  # two parts of four slots
    first = result.finding.wrong[0]
    assert (first.layer, first.part) == (1, 0)
    assert first.origin is not None
    assert (first.origin.layer, first.origin.part) == (1, 1)
    assert "layer 1, key, slot 0 holds the value of block" in result.finding.text


def test_an_executor_that_raises_is_a_finding() -> None:
    def wrong(caches: Caches, moves: Moves) -> None:
        raise TypeError("no such thing")

    finding = case_with(wrong).finding
    assert finding is not None
    assert (finding.kind, finding.text) == (
        FindingKind.RAISED,
        "in step 1, the executor raised TypeError: no such thing",
    )


def test_an_executor_that_asks_to_leave_ends_nothing() -> None:
    def wrong(caches: Caches, moves: Moves) -> None:
        raise SystemExit(0)

    finding = case_with(wrong).finding
    assert finding is not None
    assert (finding.kind, finding.text) == (FindingKind.RAISED, "in step 1, the executor raised SystemExit: 0")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit(), OutOfTime(), UnknownSetting("x")])
def test_an_executor_that_raises_what_would_end_the_run_is_a_finding(error: BaseException) -> None:
    def wrong(caches: Caches, moves: Moves) -> None:
        raise error

    with interruptible():
        result = case_with(wrong)
    assert result.finding is not None
    assert (result.finding.kind, type(error).__name__ in result.finding.text) == (FindingKind.RAISED, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_of_the_user_ends_the_run_in_a_step_of_an_executor(number: signal.Signals) -> None:
    with interruptible(), pytest.raises(UserInterrupt):
        case_with(lambda caches, moves: signal.raise_signal(number))


def test_a_users_executor_that_fails_while_it_is_timed_is_left_out() -> None:
    def wrong(caches: Caches) -> Callable[[Moves], object]:
        return lambda moves: sys.exit("enough")

    load = TimedWork(geometry(), (), 1, 1)
    move = load.prepared(Executor("wrong", wrong, is_own=True), load.world(CPU))
    with pytest.raises(ExecutorRaised, match="SystemExit: enough"):
        move(Moves())


def test_an_executor_that_rewrites_its_mapping_changes_none_of_ours() -> None:
    def wrong(caches: Caches, moves: Moves) -> None:
        right(caches, moves)
        for name, _, _, _ in list(moves.lists()):
            object.__setattr__(moves, name, ())

    mixed = scenario("mixed", 0, 12, 9, 4)
    executor = Executor("wrong", lambda caches: lambda moves: wrong(caches, moves))
    assert run_case(executor, geometry(), mixed, CPU).finding is None
    assert mixed == scenario("mixed", 0, 12, 9, 4)


def test_a_device_that_an_executor_has_broken_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(world: World) -> object:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(World, "wrong", fails)
    with pytest.raises(RuntimeError, match="illegal memory access"):  # of ours, where the device works
        case_with(right)
    monkeypatch.setattr(harness, "broken", lambda device: "RuntimeError: CUDA error: an illegal memory access")
    finding = case_with(right).finding
    assert finding is not None
    assert finding.kind is FindingKind.BROKE_DEVICE
    assert finding.text == (
        "after step 1, the device can no longer be used: RuntimeError: CUDA error: an illegal memory access"
    )


def test_an_error_of_cuda_is_shown_without_what_torch_says_about_its_own_debugging() -> None:
    error = torch.AcceleratorError("CUDA error: an illegal memory access\nCompile with TORCH_USE_CUDA_DSA")

    def wrong(caches: Caches, moves: Moves) -> None:
        raise error

    finding = case_with(wrong).finding
    assert finding is not None
    assert finding.text == "in step 1, the executor raised AcceleratorError: CUDA error: an illegal memory access"


def test_a_case_for_which_there_is_no_memory_is_skipped_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> World:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 84017152 bytes.")

    monkeypatch.setattr(harness, "World", full)
    result = case_with(right)
    assert (result.status, result.finding) == (CaseStatus.SKIPPED, None)
    assert result.reason == "there is no memory for pools of 0.0264 MiB"


def test_an_executor_that_cannot_be_prepared_is_a_finding() -> None:
    def prepare(caches: Caches) -> Callable[[Moves], object]:
        raise RuntimeError("not on this day")

    result = run_case(Executor("wrong", prepare), geometry(), scenario("one", 0, 12, 9, 4), CPU)
    assert result.finding is not None
    assert result.finding.kind is FindingKind.RAISED
    assert result.num_steps == 0


def test_an_executor_that_does_not_return_is_a_finding() -> None:
    finding = case_with(lambda caches, moves: time.sleep(60), seconds_max=0.05).finding
    assert finding is not None
    assert finding.kind is FindingKind.HANG


def test_bytes_that_are_right_only_when_the_device_has_come_to_rest_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Callable[[], None]] = []

    def late(caches: Caches, moves: Moves) -> None:
        waiting.append(lambda: right(caches, moves))

    def synchronize(world: World) -> None:
        while waiting:
            waiting.pop()()

    monkeypatch.setattr(World, "synchronize", synchronize)
    finding = case_with(late, kind="one").finding
    assert finding is not None
    assert finding.kind is FindingKind.LATE
    assert "the executor did not wait for its work" in finding.text


@pytest.mark.parametrize("target", [-1, 9, 12 + 3])
def test_a_mapping_out_of_range_is_refused_before_a_byte_moves(target: int) -> None:
    called: list[Caches] = []
    executor = Executor("never", lambda caches: lambda moves: called.append(caches))
    bad = Scenario("bad", 0, 12, 9, 4, (Step(Moves(swap_out=((0, 0),))), Step(Moves(swap_out=((1, 1), (2, target))))))
    result = run_case(executor, geometry(), bad, CPU)
    assert result.finding is not None
    assert result.finding.kind is FindingKind.REFUSED_MAPPING
    assert (
        f"the mapping of step 2 was refused and nothing was moved: swap_out pair 2 -> {target}" in result.finding.text
    )
    assert (called, result.num_steps) == ([], 0)


def test_an_executor_that_writes_past_the_end_is_found_by_the_guards() -> None:
    def wrong(caches: Caches, moves: Moves) -> None:
        right(caches, moves)
        plane = caches.gpu_planes[-1]
        beyond = plane.as_strided((1,), (1,), plane.storage_offset() + plane.shape[0] * plane.stride(0))
        beyond[0] = 0

    finding = case_with(wrong).finding
    assert finding is not None
    assert finding.wrong[0].block == -1
    assert "the guard one row after block 11 of the GPU pool" in finding.text


def test_an_executor_that_reads_a_freed_block_gets_poison() -> None:
    """Blocks that the first step frees are copied by the second, wrongly."""

    def wrong(caches: Caches, moves: Moves) -> None:
        right(caches, moves)
        if moves.copy:
            for plane in caches.gpu_planes:
                plane[3] = plane[5]

    made = Scenario("freed", 0, 12, 9, 4, (Step(freed_gpu=(5,)), Step(Moves(copy=((2, 3),)))))
    executor = Executor("wrong", lambda caches: lambda moves: wrong(caches, moves))
    finding = run_case(executor, geometry(), made, CPU).finding
    assert finding is not None
    assert set(finding.histogram) == {"poison"}


def test_what_an_executor_cannot_do_is_skipped_with_the_reason() -> None:
    executor = Executor("picky", BUILT_IN["engine"].prepare, lambda geometry, device: "not on Fridays")
    result = run_case(executor, geometry(), scenario("one", 0, 12, 9, 4), CPU)
    assert (result.status, result.reason, result.bytes_proven) == (CaseStatus.SKIPPED, "not on Fridays", 0)


@pytest.mark.parametrize("order", list(permutations(("swap_in", "swap_out", "copy"))))
def test_only_the_workers_order_of_the_three_lists_gives_the_right_bytes(order: tuple[str, str, str]) -> None:
    def in_order(caches: Caches, moves: Moves) -> None:
        for name in order:
            right(caches, Moves(**{name: getattr(moves, name)}))

    finding = case_with(in_order, kind="worker-order").finding
    assert (finding is None) == (order == ("swap_in", "swap_out", "copy"))
