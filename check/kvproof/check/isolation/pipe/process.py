"""Run a program that answers each line of JSON with one line of JSON.

There are two kinds of errors. A program that ends or does not answer in time refutes `total-calls`, like a manager in
this process that raises or hangs. A line that violates the protocol is an error of the adapter, not of the manager.

Memory is limited by what the program and its children use, not by the addresses that they map: a program that was built
with a sanitizer, or a Java machine, maps terabytes and uses little.
"""

import errno
import os
import shlex
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kvproof.check.hosts.line_host import LINE_BYTES_MAX, LOOK_SECONDS, Ended, LineHost, LineTooLong, NotRead
from kvproof.check.hosts.output import SubjectOutput
from kvproof.check.hosts.time_limit import Limits, call_seconds, require_time
from kvproof.check.isolation.remote_subject import CRASH, HANG
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.subjects import UnknownSubject
from kvproof.spec.trace import NO_ANSWER

_LINE_END = b"\n"
LOOK_CALLS = 2048  # between two looks at what a program uses that answers
SILENT_SECONDS_MAX = 5.0  # it may work longer than this before it says hello, but not wait
TEXT_MAX = 120  # characters of a wrong line that a message quotes
LACKING = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)  # kvproof or the machine lacks it


class Program:
    """One running program. Raises UnknownSubject if it cannot be started."""

    def __init__(self, command: str, limits: Limits) -> None:
        self.command, self.limits = command, limits
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise UnknownSubject(f"pipe:{command}: not a valid command line: {error}") from error
        if not words:
            raise UnknownSubject("pipe: names no program; write pipe:./manager, with its arguments")
        try:
            self._host = LineHost(words, SubjectOutput())
        except OSError as error:
            if error.errno in LACKING:
                raise
            raise UnknownSubject(f"pipe:{command}: {words[0]} cannot be started: {error.strerror}") from error
        self._num_asked = 0
        self._encoder = msgspec.json.Encoder()

    @property
    def is_alive(self) -> bool:
        """Whether `end` has not been called."""
        return self._host.is_alive

    def hello(self) -> dict[str, Any]:
        """The first line of the program, in which it describes itself. Raises UnknownSubject."""
        try:
            self._await_hello()
            seconds = self.limits.start_seconds
            return self._answer("the handshake", "hello", seconds, lambda look: self._host.line(seconds, look))
        except (Finding, AdapterError) as error:
            self.end()
            text = error.text if isinstance(error, Finding) else str(error)
            raise UnknownSubject(
                f"pipe:{self.command}: the program must first write one line of JSON that describes it: {text}"
            ) from error

    def _await_hello(self) -> None:
        """Wait until the program writes or ends. Raises Finding if it neither writes nor works for some seconds."""
        deadline, used, silent_since = time.monotonic() + self.limits.start_seconds, 0, time.monotonic()
        while not self._host.can_read(LOOK_SECONDS) and time.monotonic() < deadline:
            if (now := self._usage("the handshake", "hello").ticks) != used:
                used, silent_since = now, time.monotonic()
            if time.monotonic() - silent_since > SILENT_SECONDS_MAX:
                text = f"it has written nothing and done nothing for {SILENT_SECONDS_MAX:g} s"
                raise Finding("total-calls", text, f"hello {HANG}")

    def ask(self, call: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a call. Raises Finding, AdapterError and OutOfTime; then the program is ended."""
        require_time()
        context = f"{call}({', '.join(f'{name} {value}' for name, value in arguments.items())})"
        line = self._encoder.encode({"call": call, **arguments}) + b"\n"
        seconds = call_seconds(self.limits.call_seconds)
        try:
            if self._host.can_read(0) and (extra := self._host.read()):
                raise AdapterError(f"the call before {context} was answered by more than one line, late: {_cut(extra)}")
            self._num_asked += 1
            if self._num_asked % LOOK_CALLS == 0:
                self._usage(context, call)
            return self._answer(context, call, seconds, lambda look: self._host.ask(line, seconds, look))
        except BaseException:
            self.end()
            raise

    def _usage(self, context: str, call: str) -> "Usage":
        """What the program uses. Raises Finding if it uses more memory than it may."""
        usage = usage_of(self._host.pid)
        if usage.memory_bytes > self.limits.memory_bytes:
            text = f"$asked made the program use more than {self.limits.memory_bytes:,} bytes of memory"
            raise Finding("total-calls", text, f"{call} {CRASH}", values={"asked": context})
        return usage

    def _answer(
        self, context: str, call: str, seconds: float, line_by: Callable[[Callable[[], object]], bytes]
    ) -> dict[str, Any]:
        """The answer that a way to get a line brings; it is called with what looks at the program meanwhile."""
        try:
            line = line_by(lambda: self._usage(context, call))
        except NotRead:
            text, cause = "$asked was not read by the program", HANG
        except TimeoutError:
            text, cause = f"$asked gave {NO_ANSWER} {seconds:g} s", HANG
        except Ended as how:
            text, cause = f"$asked ended the program, which {how}", CRASH
        except LineTooLong:
            raise AdapterError(f"{context} was answered by a line of more than {LINE_BYTES_MAX:,} bytes") from None
        else:
            return self._decoded(context, line)
        raise Finding("total-calls", text, f"{call} {cause}", values={"asked": context})

    def _decoded(self, context: str, line: bytes) -> dict[str, Any]:
        if self._host.rest:
            lines = f"{_cut(line)}, then {_cut(self._host.rest.partition(_LINE_END)[0])}"
            raise AdapterError(f"{context} was answered by more than one line: {lines}")
        try:
            answer = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise AdapterError(f"{context} was answered by a line that is not JSON ({error}): {_cut(line)}") from None
        if not isinstance(answer, dict):
            raise AdapterError(f"{context} was answered by {_cut(line)}, which is not a JSON object")
        return answer

    def require_in_step(self) -> None:
        """End the program; raise AdapterError if it wrote more lines than it was asked for.

        A second answer that comes late is read as the answer to the next call, so each answer after it belongs to the
        call before. The last one is then left over when the program has seen the end of its input.
        """
        if not self.is_alive:
            return
        self._host.read_to_the_end()
        self.end()
        if self._host.rest:
            text = "a call was answered by more than one line; after the answer to the last call there is still"
            first = self._host.rest.partition(_LINE_END)[0]
            raise AdapterError(f"{text} {_cut(first)}")

    def end(self) -> None:
        self._host.end()


class Usage(NamedTuple):
    """What a program and its children use. ticks: processor time. memory_bytes: of main memory."""

    ticks: int
    memory_bytes: int


def usage_of(supervisor: int) -> Usage:
    """What the descendants of a process use that are still there. Source: proc(5), /proc/pid/stat."""
    used: dict[int, Usage] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            values = stat.read_text().rpartition(")")[2].split()  # from the state on, which is the third value
            pid, memory_bytes = int(stat.parent.name), int(values[21]) * os.sysconf("SC_PAGE_SIZE")
            used[pid] = Usage(int(values[11]) + int(values[12]), memory_bytes)
            children[int(values[1])].append(pid)
    found = children[supervisor]
    for pid in found:
        found += children.pop(pid, [])
    return Usage(sum(used[pid].ticks for pid in found), sum(used[pid].memory_bytes for pid in found))


def _cut(line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "...")
