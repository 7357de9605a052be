"""What both managers are driven by: the same light sequences, the same loops, the same clock.

Neither side may win by what is not its own:

- Both read sequences and groups of the same two classes, which hold nothing but what a manager asks for.
- Time is the thread's own processor time, so that a long call does not pay for other processes more than a short one.
  What the clock and the loop around the calls cost is measured and taken off.
- Every timed loop is a copy of its own for each manager and call: the interpreter adapts a loop to what it calls.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from kvproof.check.hosts.descendants import adopt_descendants, children
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.vllm.v0_loader import import_manager
from kvproof.impl import BlockManager, SequenceStatus

VLLM_VERSION = "0.9.2"
BLOCK_SIZE = 16
OURS, THEIRS = "kvproof", f"vllm {VLLM_VERSION}"
MODES = {"naive": False, "caching": True}


class LightSequence:
    """What a manager reads of a sequence and of its data, and nothing else."""

    __slots__ = ("data", "num_computed", "seq_id", "status", "tokens")

    def __init__(self, seq_id: int, tokens: list[int], status: Any) -> None:
        self.seq_id, self.tokens, self.status = seq_id, tokens, status
        self.num_computed = 0
        self.data = self

    def get_token_ids(self) -> list[int]:
        return self.tokens

    def get_len(self) -> int:
        return len(self.tokens)

    def get_num_computed_tokens(self) -> int:
        return self.num_computed

    def is_prefill(self) -> bool:
        return not self.num_computed

    def extra_hash(self) -> None:
        return None


class LightGroup:
    """What a manager reads of a group."""

    __slots__ = ("request_id", "seqs")

    def __init__(self, request_id: str, seqs: list[LightSequence]) -> None:
        self.request_id, self.seqs = request_id, seqs

    def get_seqs(self, status: Any = None) -> list[LightSequence]:
        return self.seqs if status is None else [seq for seq in self.seqs if seq.status is status]

    def is_encoder_decoder(self) -> bool:
        return False

    def get_encoder_seq(self) -> None:
        return None


@dataclass(frozen=True)
class Driven:
    """A manager's class, and the statuses it compares with."""

    name: str
    make: Callable[..., Any]
    status: Any


def managers() -> tuple[list[Driven], str]:
    """Ours and, where its sources are here or can be had, vLLM's; and else why it is missing, in one line."""
    try:
        return [ours(), theirs()], ""
    except EngineError as error:
        how = f"`kvproof engines add vllm=={VLLM_VERSION}` brings its sources in"
        return [ours()], f"vLLM {VLLM_VERSION} is left out: {error} ({how})"


def ours() -> Driven:
    """The built-in manager."""
    return Driven(OURS, BlockManager, SequenceStatus)


def theirs() -> Driven:
    """vLLM's, which is brought in if it is not here yet. Raises EngineError."""
    try:
        brought = import_manager(VLLM_VERSION)
    except EngineError:
        download.add(f"vllm=={VLLM_VERSION}")
        brought = import_manager(VLLM_VERSION)
    return Driven(THEIRS, brought.make, brought.status)


# Commands ---------------------------------------------------------------------------------------------------------


def seconds_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[float, float]:
    """The seconds of a command by the clock, and of all its processes' processor time. Raises RuntimeError if it fails.

    environment: variables that are added to those of this process. The command finds the modules that this one does.
    The processor time has that of processes whose parent was killed, too: on Linux they become children of this one.
    """
    adopt_descendants()
    before = children()
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})}
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ends with exit code {process.returncode}")
    seconds, all_used = time.monotonic() - began, [used]
    while orphans := children() - before:
        all_used += [os.wait4(orphan, 0)[2] for orphan in orphans]
    return seconds, sum(one.ru_utime + one.ru_stime for one in all_used)


# Timed loops ------------------------------------------------------------------------------------------------------


def call_each(call: Callable[[Any], object], items: Iterable[Any]) -> int:
    """Nanoseconds for one call for each item."""
    began = time.thread_time_ns()
    for item in items:
        call(item)
    return time.thread_time_ns() - began


def call_each_pair(call: Callable[[Any, Any], object], items: Iterable[tuple[Any, Any]]) -> int:
    """The same for calls with two arguments."""
    began = time.thread_time_ns()
    for one, other in items:
        call(one, other)
    return time.thread_time_ns() - began


def round_trips(manager: Any, status: Any, groups: Iterable[LightGroup]) -> int:
    """Nanoseconds for each group of one sequence to leave for the host and come back."""
    swap_out, swap_in, swapped, running = manager.swap_out, manager.swap_in, status.SWAPPED, status.RUNNING
    began = time.thread_time_ns()
    for group in groups:
        swap_out(group)
        group.seqs[0].status = swapped
        swap_in(group)
        group.seqs[0].status = running
    return time.thread_time_ns() - began


def appends(manager: Any, seqs: Iterable[LightSequence], num_tokens: int) -> int:
    """Nanoseconds for each sequence to grow token by token, each with its slot."""
    append_slots = manager.append_slots
    began = time.thread_time_ns()
    for seq in seqs:
        for token in range(num_tokens):
            seq.tokens.append(token)
            append_slots(seq, 0)
    return time.thread_time_ns() - began


def turn_alone(items: Iterable[Any]) -> int:
    """A loop that calls nothing."""
    began = time.thread_time_ns()
    for _item in items:
        pass
    return time.thread_time_ns() - began


def own_copy(function: Any) -> Any:
    """The same function with code of its own, which the interpreter adapts to one use alone."""
    return FunctionType(function.__code__.replace(), function.__globals__)


class Clock:
    """Timed loops of one manager; all answers are microseconds per call."""

    def __init__(self) -> None:
        self._loops: dict[tuple[str, str], Any] = {}
        nothing, many = [0] * 0, [0] * 5_000
        self.nanoseconds = statistics.median(turn_alone(nothing) for _ in range(201))
        self.turn_nanoseconds = statistics.median(turn_alone(many) - self.nanoseconds for _ in range(51)) / len(many)

    def each(self, call: Callable[[Any], object], items: list[Any]) -> float:
        """One call for each item."""
        return self._per_call(self._loop(call_each, call)(call, items), len(items))

    def each_pair(self, call: Callable[[Any, Any], object], pairs: list[tuple[Any, Any]]) -> float:
        """One call with both for each pair."""
        return self._per_call(self._loop(call_each_pair, call)(call, pairs), len(pairs))

    def round_trip(self, manager: Any, status: Any, groups: list[LightGroup]) -> float:
        """Each group, of one sequence, leaves for the host and comes back."""
        return self._per_call(self._loop(round_trips)(manager, status, groups), len(groups))

    def appends(self, manager: Any, seqs: list[LightSequence], num_tokens: int) -> float:
        """Each sequence grows by so many tokens, one after the other."""
        return self._per_call(self._loop(appends)(manager, seqs, num_tokens), len(seqs) * num_tokens)

    def _loop(self, loop: Any, call: Any = None) -> Any:
        key = loop.__name__, getattr(call, "__name__", "")
        if key not in self._loops:
            self._loops[key] = own_copy(loop)
        return self._loops[key]

    def _per_call(self, elapsed: int, num_calls: int) -> float:
        return max(0.001, ((elapsed - self.nanoseconds) / num_calls - self.turn_nanoseconds) / 1000)


def shown(cost: float) -> str:
    """Microseconds, to the nanosecond where that says something."""
    return f"{cost:,.3f}" if cost < 1_000 else f"{cost:,.0f}"


# The host -----------------------------------------------------------------------------------------------------------


def host() -> dict[str, Any]:
    """The host, on which the figures depend as much as on the managers."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()] if hasattr(os, "getloadavg") else [],
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def resident_megabytes() -> float:
    """Memory of this process that is in use now; where the system does not say, the most there ever was."""
    if lines := _lines("/proc/self/statm"):
        return int(lines[0].split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    import resource  # not on every system

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []
