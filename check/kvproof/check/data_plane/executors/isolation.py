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
from dataclasses import asdict
from types import TracebackType

import msgspec
import torch

from kvproof.check.data_plane.memory.layouts import WORD_BYTES, Geometry, UnknownSetting
from kvproof.check.data_plane.speed.stopwatch import TakenThere
from kvproof.check.data_plane.steps.moves import Moves, PoolId
from kvproof.check.hosts.line_host import Ended, LineHost, LineTooLong
from kvproof.check.hosts.output import SubjectOutput
from kvproof.check.hosts.program import DISCARDED, how_it_ended, module
from kvproof.check.hosts.supervised_command import SupervisedCommand
from kvproof.check.hosts.time_limit import require_time
from kvproof.check.subjects.probe_process import FOUND

START_SECONDS_MAX = 60.0  # importing torch on a busy machine
WROTE = "it wrote to the pipe of the answers"
_PROCESS = "kvproof.check.data_plane.executors.isolated_process"
_PROBE = "kvproof.check.subjects.probe_process"


class ExecutorRaised(Exception):
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
        self._process: LineHost | None = None

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
        """Prepare the executor for a case, on the memory that was shared last.

        Raises ExecutorRaised, Hung, Crashed, OutOfTime; UnknownSetting if the function cannot be imported.
        """
        require_time()
        if self._process is None:
            self._process = self._started()
        sizes = {**asdict(geometry), "layout": geometry.layout.value}
        self._ask({"open": sizes, "memory": list(self._memory.values())}, START_SECONDS_MAX)

    def move(self, moves: Moves) -> TakenThere:
        """Execute one step. Returns the time that the executor took. Raises ExecutorRaised, Hung, Crashed."""
        return TakenThere(self._ask({"move": asdict(moves)}, self.seconds_max).seconds)

    def rest(self, seconds_max: float) -> int:
        """Wait for the threads that the executor left running. Returns how many there were. Raises Hung, Crashed."""
        return self._ask({"rest": seconds_max}, seconds_max + self.seconds_max).threads

    def _started(self) -> LineHost:
        output = SubjectOutput(is_printed=False)
        shared = tuple(self._memory.values())
        return LineHost(module(_PROCESS, self.name), output, over_arguments=True, inherited=shared)

    def _ask(self, request: dict[str, object], seconds_max: float) -> _Answer:
        process = self._process
        assert process is not None
        try:
            line = process.ask(json.dumps(request).encode() + b"\n", seconds_max)
            answer = msgspec.json.decode(line, type=_Answer)
        except TimeoutError:
            raise Hung(f"no answer within {seconds_max:g} s") from None
        except Ended as ended:
            last = process.last_output() if ended.code >= 0 else ""
            raise Crashed(f"its process {ended}" + (f" after: {last}" if last else "")) from None
        except LineTooLong:
            raise Crashed(f"{WROTE} (a line without an end)") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            process.end()
            raise Crashed(f"{WROTE} ({error})") from None
        finally:
            if not process.is_alive:
                self._process = None
        if answer.unknown:
            raise UnknownSetting(answer.unknown)
        if answer.raised:
            raise ExecutorRaised(answer.raised)
        return answer

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


def require_function(name: str, seconds_max: float = START_SECONDS_MAX) -> None:
    """Raise UnknownSetting, for the user, unless another process can import the function in this time.

    The function is not imported into this process.
    """
    here, there = os.pipe()
    with os.fdopen(here, "rb") as answer:
        command = module(_PROBE, name, str(there))
        process = SupervisedCommand(command, streams=(DISCARDED,) * 3, inherited=[there])
        os.close(there)
        try:
            code = process.wait(seconds_max)
        finally:
            process.end()
        if code is None:
            raise UnknownSetting(f"{name}: the import did not end within {seconds_max:g} s")
        reason = answer.read().decode(errors="replace")
    if reason != FOUND or code:
        raise UnknownSetting(reason.removeprefix(FOUND) or f"{name}: the process that imported it {how_it_ended(code)}")


def _sealed_memory(name: str) -> int:
    """A descriptor of shared memory that can grow, but never shrink."""
    descriptor = os.memfd_create(f"kvproof-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return descriptor


def mapped(descriptor: int, geometry: Geometry, pool: PoolId) -> torch.Tensor:
    """The words of one pool in shared memory that has room for them. Both processes see the same words."""
    num_words = geometry.num_rows(pool) * geometry.row_words
    return torch.from_file(f"/proc/self/fd/{descriptor}", shared=True, size=num_words, dtype=torch.int64)
