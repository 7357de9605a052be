"""Event logs with and without a race, modelled on faults of engines.

The harness checks all of them in every run. If the check misses a race or reports one that does not exist, the check
itself is faulty. Sources are given as project and number of the issue or pull request.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kvproof.check.data_plane.run.results import RaceResult
from kvproof.check.data_plane.steps.ordering import HOST, Cell, EventLog

NUM_ORDERS = 100


@dataclass(frozen=True)
class LogCase:
    """One event log, and whether it has a race. write: adds the work to a log."""

    name: str
    has_race: bool
    write: Callable[[EventLog], None]

    @property
    def sentence(self) -> str:
        """What happens in the log."""
        return (self.write.__doc__ or "").strip()


def gpu(block: int) -> Cell:
    return "the GPU pool", block


def cpu(block: int) -> Cell:
    return "the CPU pool", block


def pinned(buffer: int) -> Cell:
    return "the pinned buffers", buffer


def one_stream(log: EventLog) -> None:
    """Swaps, copies and the model on one stream, as vLLM's V0 worker does: all in order."""
    log.copy("main", "swap in", cpu(1), gpu(5))
    log.copy("main", "swap out", gpu(6), cpu(2))
    log.copy("main", "copy", gpu(7), gpu(6))
    log.work("main", "the model", [gpu(5), gpu(6)], [gpu(6)])


def store_without_wait(log: EventLog) -> None:
    """A block is stored on a stream of its own while the model may still write it (vLLM 31341, 45704)."""
    log.work("main", "the model", [], [gpu(5)])
    log.copy("store", "the store", gpu(5), cpu(1))


def store_after_wait(log: EventLog) -> None:
    """The store waits for the model."""
    log.work("main", "the model", [], [gpu(5)])
    log.record("main", "written")
    log.wait("store", "written")
    log.copy("store", "the store", gpu(5), cpu(1))


def load_over_read(log: EventLog) -> None:
    """A load overwrites a freed block while attention of the previous step still reads it (vLLM 47282)."""
    log.work("main", "attention", [gpu(5)], [gpu(9)])
    log.copy("load", "the load", cpu(1), gpu(5))


def load_then_use(log: EventLog) -> None:
    """Attention reads a block without waiting for its load (SGLang 22811)."""
    log.copy("load", "the load", cpu(1), gpu(5))
    log.work("main", "attention", [gpu(5)], [gpu(9)])


def load_after_wait(log: EventLog) -> None:
    """The load waits for attention, and the next attention waits for the load."""
    log.work("main", "attention 1", [gpu(5)], [gpu(9)])
    log.record("main", "read")
    log.wait("load", "read")
    log.copy("load", "the load", cpu(1), gpu(5))
    log.record("load", "loaded")
    log.wait("main", "loaded")
    log.work("main", "attention 2", [gpu(5)], [gpu(9)])


def pinned_buffer_reused(log: EventLog) -> None:
    """The host refills a pinned buffer before the first copy has read it (TensorRT-LLM 15546)."""
    log.work(HOST, "filling 1", [], [pinned(0)])
    log.copy("copies", "copy 1", pinned(0), gpu(1))
    log.work(HOST, "filling 2", [], [pinned(0)])
    log.copy("copies", "copy 2", pinned(0), gpu(2))


def pinned_buffer_awaited(log: EventLog) -> None:
    """The host waits for the first copy before it refills the buffer."""
    log.work(HOST, "filling 1", [], [pinned(0)])
    log.copy("copies", "copy 1", pinned(0), gpu(1))
    log.record("copies", "copied")
    log.wait(HOST, "copied")
    log.work(HOST, "filling 2", [], [pinned(0)])
    log.copy("copies", "copy 2", pinned(0), gpu(2))


def chained_batch(log: EventLog) -> None:
    """One call copies a block to a second and the second to a third."""
    log.batch("main", "copy_blocks", [(gpu(30), gpu(31)), (gpu(31), gpu(32))])


def doubled_batch(log: EventLog) -> None:
    """One call copies two blocks to the same place."""
    log.batch("main", "copy_blocks", [(gpu(30), gpu(40)), (gpu(31), gpu(40))])


def disjoint_batch(log: EventLog) -> None:
    """One call copies one block to two places and another to a third."""
    log.batch("main", "copy_blocks", [(gpu(30), gpu(40)), (gpu(30), gpu(41)), (gpu(31), gpu(42))])


def read_too_early(log: EventLog) -> None:
    """The host reads the target of a copy without waiting for the copy."""
    log.copy("copies", "the copy", gpu(1), cpu(3))
    log.work(HOST, "the host's reading", [cpu(3)], [])


def two_directions(log: EventLog) -> None:
    """A block is swapped out on one stream, and a swap in on another stream overwrites it."""
    log.copy("out", "swap out", gpu(5), cpu(1))
    log.copy("in", "swap in", cpu(9), gpu(5))


def wrong_event(log: EventLog) -> None:
    """Events are stored by slot but not by pool, so a stream waits for the wrong one (TensorRT-LLM 15272)."""
    log.copy("off", "offload", gpu(0), cpu(1))
    log.record("off", "slot 0")
    log.copy("on", "onboard 1", cpu(0), gpu(1))
    log.record("on", "slot 0")
    log.wait("again", "slot 0")
    log.copy("again", "onboard 2", cpu(5), gpu(0))


LOGS: tuple[LogCase, ...] = (
    LogCase("one-stream", False, one_stream),
    LogCase("store-without-wait", True, store_without_wait),
    LogCase("store-after-wait", False, store_after_wait),
    LogCase("load-over-read", True, load_over_read),
    LogCase("load-then-use", True, load_then_use),
    LogCase("load-after-wait", False, load_after_wait),
    LogCase("pinned-buffer-reused", True, pinned_buffer_reused),
    LogCase("pinned-buffer-awaited", False, pinned_buffer_awaited),
    LogCase("chained-batch", True, chained_batch),
    LogCase("doubled-batch", True, doubled_batch),
    LogCase("disjoint-batch", False, disjoint_batch),
    LogCase("read-too-early", True, read_too_early),
    LogCase("two-directions", True, two_directions),
    LogCase("wrong-event", True, wrong_event),
)


def judge_races(seed: int) -> list[RaceResult]:
    """Check every log for races, and replay it in random orders."""
    found = []
    for case in LOGS:
        log = EventLog()
        case.write(log)
        races = log.races()
        message = str(races[0]) if races else "all accesses to the same block are ordered"
        corrupt = log.replay(NUM_ORDERS, seed)
        found.append(RaceResult(case.name, case.sentence, case.has_race, bool(races), message, corrupt, NUM_ORDERS))
    return found
