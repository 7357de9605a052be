"""Measure how much recording costs a call of an engine's manager: transformers, LMCache and SGLang.

Each manager is that of a downloaded release, without a model. A call and its recording are timed apart, in processor
time of the thread, so that what else the program does is not counted. The time of a call that is made within another
recorded call counts for itself alone.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sglang_server import Server
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.recording import record
from kvproof.check.recording.example_run import record_run
from kvproof.check.recording.recorder import Recorder
from kvproof.check.recording.sglang.recorder import RadixRecorder
from kvproof.check.subjects.lmcache.l1 import LMCacheL1
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.transformers.scheduler import Transformers

TRANSFORMERS, LMCACHE, SGLANG = "5.23.0", "0.5.6", "0.5.23"
FIXED = {"num_host_blocks": 0, "async_steps": 0, "caching": True}  # of transformers
NUM_STEPS, NUM_CALLS, NUM_OBJECTS = 400, 2_000, 64
SIZES, LENGTH = (16, 2_000, 48), 512  # of SGLang: tokens of a page, pages, requests; tokens of a prompt
WITHOUT, RECORDING = 0, 1


class Key(NamedTuple):
    """The fields of LMCache's `ObjectKey`."""

    chunk_hash: bytes
    model_name: str = "model"
    kv_rank: int = 0
    object_group_id: int = 0
    cache_salt: str = ""


class Timer:
    """Processor seconds of calls and of their recording, each without what runs within it."""

    def __init__(self) -> None:
        self.seconds = [0.0, 0.0]
        self._since, self._kinds = 0.0, list[int]()

    @contextmanager
    def during(self, kind: int) -> Iterator[None]:
        """Count the time for this kind."""
        self._switch()
        self._kinds.append(kind)
        try:
            yield
        finally:
            self._switch()
            self._kinds.pop()

    def _switch(self) -> None:
        now = time.thread_time()
        if self._kinds:
            self.seconds[self._kinds[-1]] += now - self._since
        self._since = now

    def following(self, function: Callable[..., Any], kind: int) -> Callable[..., Any]:
        """The function, whose time is counted for this kind."""

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.during(kind):
                return function(*arguments, **options)

        return timed


@contextmanager
def timed_recorders() -> Iterator[Timer]:
    """Time all recorders that are made meanwhile."""
    timer, written = Timer(), Recorder._write_line
    wraps = [(Recorder, "_recorded"), (RadixRecorder, "_recorded_in_pool")]
    before = [getattr(kind, name) for kind, name in wraps]

    def with_time(wrap: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, name, inner: wrap(self, name, timer.following(inner, WITHOUT))

    recorders: Any = Recorder
    recorders._write_line = timer.following(written, RECORDING)
    for (kind, name), wrap in zip(wraps, before, strict=True):
        setattr(kind, name, with_time(wrap))
    try:
        yield timer
    finally:
        recorders._write_line = written
        for (kind, name), wrap in zip(wraps, before, strict=True):
            setattr(kind, name, wrap)


def _transformers(path: Path) -> int:
    return record_run(lambda: Transformers(TRANSFORMERS), 1, NUM_STEPS, path, FIXED).num_lines


def _lmcache(num_keys: int) -> Callable[[Path], int]:
    def run(path: Path) -> int:
        subject = LMCacheL1(LMCACHE)
        subject.open(StoreConfig(num_gpu_blocks=NUM_OBJECTS))
        manager = subject._manager
        with record(manager, path) as recorder:
            for number in range(NUM_CALLS // 5):
                keys = [Key(b"%d" % (number * num_keys + at)) for at in range(num_keys)]
                manager.reserve_write(keys, [False] * num_keys, None, tag="server")
                manager.finish_write(keys, "server")
                manager.reserve_read(keys)
                manager.finish_read(keys)
                manager.delete(keys)
        return recorder.num_lines

    return run


def _sglang(path: Path) -> int:
    server = Server(SGLANG, 1, SIZES, LENGTH)
    with record(server.adapter.manager, path) as recorder:
        for _ in range(NUM_STEPS // 5):
            server.step()
    return recorder.num_lines


ROWS: dict[str, Callable[[Path], int]] = {
    "transformers": _transformers,
    **{f"LMCache, {num_keys} keys": _lmcache(num_keys) for num_keys in (1, 4, 8)},
    "SGLang": _sglang,
}


def main(folder: Path) -> dict[str, object]:
    """Print the cost of a call of each engine, without and with recording. Returns the figures."""
    figures: dict[str, object] = {}
    for name, run in ROWS.items():
        try:
            with timed_recorders() as timer:
                num_lines = run(folder / "engine.jsonl")
        except EngineError as error:
            print(f"  {name:<16} skipped: {error}")
            continue
        without, recording = (1e6 * seconds / num_lines for seconds in timer.seconds)
        figures[name] = {"us/call": without, "us/call recorded": without + recording, "lines": num_lines}
        print(f"  {name:<16} {without:.1f} us/call, {without + recording:.1f} recorded: {recording:.1f} more")
    return figures
