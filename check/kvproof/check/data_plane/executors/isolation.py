"""Run a user's executor in a separate process, so that its crash or hang is a finding and does not end kvproof.

Both pools lie in memory that the two processes share. It has no name, so it is gone when both have ended, however they
ended; and it is sealed, so the executor cannot shrink it, which would end kvproof at its next access. Only the mappings
of a step and a line with the answer go through a pipe. If a step takes too long, or a line is no answer, the process is
killed. If the process ends by itself, it has crashed. In each case the next case starts a new process.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType

import msgspec
import torch

from kvproof.check.data_plane.memory.layouts import WORD_BYTES, Geometry, UnknownSetting
from kvproof.check.data_plane.speed.stopwatch import TakenThere
from kvproof.check.data_plane.steps.moves import Moves, PoolId
from kvproof.check.hosts.ending import how_it_ended
from kvproof.check.hosts.output import SubjectOutput
from kvproof.check.hosts.supervised_command import SupervisedCommand
from kvproof.check.hosts.time_limit import require_time, seconds_left
from kvproof.check.subjects.probe_process import FOUND

LINE_BYTES_MAX = 1 << 20
START_SECONDS_MAX = 60.0  # importing torch on a busy machine
_PROCESS = "kvproof.check.data_plane.executors.isolated_process"
_PROBE = "kvproof.check.subjects.probe_process"


class Raised(Exception):
    """The executor raised; the text gives the type and message of its exception."""


class Hung(Exception):
    """The executor did not return in time."""


class Crashed(Exception):
    """The executor's process ended."""


class NoRoom(Exception):
    """There is no space for the memory that the two processes share."""


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    """What the process answers. unknown: the function cannot be imported. raised: what the executor raised. seconds:
    the time of a step. threads: those that the executor left running."""

    unknown: str = ""
    raised: str = ""
    seconds: float = 0.0
    threads: int = 0


class Isolation:
    """The process of one executor, and the memory that it shares with this one. A context manager.

    name: the module:function of the executor. seconds_max: the time limit of one step.
    """

    def __init__(self, name: str, seconds_max: float) -> None:
        self.name, self.seconds_max = name, seconds_max
        self._process: SupervisedCommand | None = None

    def __enter__(self) -> Isolation:
        self._memory = {pool: _sealed_memory(pool.name) for pool in PoolId}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        for descriptor in self._memory.values():
            os.close(descriptor)

    def share(self, geometry: Geometry) -> dict[PoolId, torch.Tensor]:
        """Allocate memory for both pools that the process can map. Raises NoRoom."""
        try:
            for pool, descriptor in self._memory.items():
                os.posix_fallocate(descriptor, 0, geometry.num_rows(pool) * geometry.row_words * WORD_BYTES)
        except OSError as error:
            size = geometry.num_bytes() // (1024 * 1024)
            raise NoRoom(f"there is no memory for pools of {size} MiB ({error.strerror})") from error
        return {pool: mapped(descriptor, geometry, pool) for pool, descriptor in self._memory.items()}

    def open(self, geometry: Geometry) -> None:
        """Prepare the executor for a case, on the memory that was shared last. Raises Raised, Hung, Crashed, OutOfTime.

        Raises UnknownSetting if the function cannot be imported.
        """
        require_time()
        if self._process is None:
            self._start()
        sizes = {**asdict(geometry), "layout": geometry.layout.value}
        self._ask({"open": sizes, "memory": list(self._memory.values())}, START_SECONDS_MAX)

    def move(self, moves: Moves) -> TakenThere:
        """Execute one step. Returns the time that the executor took. Raises Raised, Hung, Crashed."""
        return TakenThere(self._ask({"move": asdict(moves)}, self.seconds_max).seconds)

    def rest(self, seconds_max: float) -> int:
        """Wait for the threads that the executor left running. Returns how many there were. Raises Hung, Crashed."""
        return self._ask({"rest": seconds_max}, seconds_max + self.seconds_max).threads

    def _start(self) -> None:
        here, there, self._output = os.pipe(), os.pipe(), SubjectOutput(is_printed=False)
        try:
            self._process = _started(
                _PROCESS, self.name, here[0], there[1], shared=self._memory.values(), errors=self._output.descriptor
            )
        finally:
            self._output.begin()
        os.close(here[0])
        os.close(there[1])
        self._requests, self._answers, self._read = here[1], there[0], b""

    def _ask(self, request: dict[str, object], seconds_max: float) -> _Answer:
        with suppress(BrokenPipeError):  # reading the answer detects that the process has ended
            data = json.dumps(request).encode() + b"\n"
            while data:
                data = data[os.write(self._requests, data) :]
        line = self._line(seconds_max)
        try:
            answer = msgspec.json.decode(line, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._end()
            raise Crashed(f"it wrote to the pipe of the answers ({error})") from None
        if answer.unknown:
            raise UnknownSetting(answer.unknown)
        if answer.raised:
            raise Raised(answer.raised)
        return answer

    def _line(self, seconds_max: float) -> bytes:
        deadline = time.monotonic() + seconds_max
        while b"\n" not in self._read:
            if len(self._read) > LINE_BYTES_MAX:
                self._end()
                raise Crashed("it wrote to the pipe of the answers (a line without an end)")
            left = min(deadline - time.monotonic(), seconds_left())
            ready, _, _ = select.select([self._answers], [], [], max(0.0, left))
            if not ready:
                self._end()
                require_time()
                raise Hung(f"no answer within {seconds_max:g} s")
            data = os.read(self._answers, 65536)
            if not data:
                raise Crashed(self._how_it_ended())
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        assert self._process is not None
        code = self._process.supervisor.wait()
        self._end()
        lines = self._output.last.strip().splitlines()
        return f"its process {how_it_ended(code)}" + (f" after: {lines[-1]}" if lines and code >= 0 else "")

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.end()
        self._process = None
        self._output.end()
        os.close(self._requests)
        os.close(self._answers)


def require_function(name: str, seconds_max: float = START_SECONDS_MAX) -> None:
    """Raise UnknownSetting, for the user, unless another process can import the function in this time.

    The function is not imported into this process.
    """
    here, there = os.pipe()
    with os.fdopen(here, "rb") as answer:
        process = _started(_PROBE, name, there, errors=subprocess.DEVNULL)
        os.close(there)
        try:
            code = process.supervisor.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise UnknownSetting(f"{name}: the import did not end within {seconds_max:g} s") from None
        finally:
            process.end()
        reason = answer.read().decode(errors="replace")
    if reason != FOUND or code:
        raise UnknownSetting(reason.removeprefix(FOUND) or f"{name}: the process that imported it {how_it_ended(code)}")


def _started(module: str, name: str, *descriptors: int, errors: int, shared: Iterable[int] = ()) -> SupervisedCommand:
    """Run a module of kvproof in a process that imports from the same places as this one; its output is discarded."""
    return SupervisedCommand(
        [sys.executable, "-m", module, name, *map(str, descriptors)],
        streams=(subprocess.DEVNULL, subprocess.DEVNULL, errors),
        inherited=(*descriptors, *shared),
        variables={"PYTHONPATH": os.pathsep.join(p for p in (os.getcwd(), *sys.path) if p)},
    )


def _sealed_memory(name: str) -> int:
    """A descriptor of shared memory that can grow, but never shrink."""
    descriptor = os.memfd_create(f"kvproof-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return descriptor


def mapped(descriptor: int, geometry: Geometry, pool: PoolId) -> torch.Tensor:
    """The words of one pool in shared memory that has room for them. Both processes see the same words."""
    num_words = geometry.num_rows(pool) * geometry.row_words
    return torch.from_file(f"/proc/self/fd/{descriptor}", shared=True, size=num_words, dtype=torch.int64)
