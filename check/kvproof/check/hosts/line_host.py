"""A program that answers each line with one line: it is started, asked within a limit, and ended.

Nothing that it does can hold this process up: it may leave its input unread, write without an end, close its output
and go on, or stop its supervisor.
"""

import os
import select
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from kvproof.check.hosts.output import SubjectOutput
from kvproof.check.hosts.program import DISCARDED, LAST_WORDS_SECONDS, how_it_ended
from kvproof.check.hosts.supervised_command import SupervisedCommand
from kvproof.check.hosts.time_limit import AGAIN_SECONDS_MIN, Patience, require_time

LINE_BYTES_MAX = 1 << 20
LOOK_SECONDS = 0.25  # between two looks at a program that does not answer
CHUNK_BYTES = 1 << 16


class NotRead(TimeoutError):
    """The program does not read what it is sent."""


class Ended(Exception):
    """The program has ended, or has closed its output. code: its exit code, which the text has in words."""

    def __init__(self, code: int) -> None:
        super().__init__(how_it_ended(code))
        self.code = code


class LineTooLong(Exception):
    """The program wrote a line that does not end."""


class LineHost:
    """A running program. Raises OSError if it cannot be started.

    output: of its standard error. arguments: the program is asked over descriptors that are its last arguments, and its
    standard streams are discarded; otherwise it is asked over its standard input and output. pid: of its supervisor.
    """

    def __init__(
        self,
        command: Sequence[str],
        output: SubjectOutput,
        *,
        over_arguments: bool = False,
        inherited: Iterable[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        (theirs, self._requests), (self._answers, answers) = os.pipe(), os.pipe()
        self._output = output
        try:
            if over_arguments:
                named = (*command, str(theirs), str(answers))
                streams = DISCARDED, DISCARDED, output.descriptor
                running = SupervisedCommand(
                    named, streams=streams, inherited=(theirs, answers, *inherited), variables=variables
                )
            else:
                running = SupervisedCommand(
                    command, streams=(theirs, answers, output.descriptor), inherited=inherited, variables=variables
                )
        except BaseException:
            os.close(self._requests)
            os.close(self._answers)
            raise
        finally:
            output.begin()
            os.close(theirs)
            os.close(answers)
        os.set_blocking(self._requests, False)
        self.pid, self._running, self.rest = running.pid, running, b""
        self._descriptors = [self._requests, self._answers]
        self._end = weakref.finalize(self, _ended, running, output, self._descriptors)

    @property
    def is_alive(self) -> bool:
        """Whether it has not been ended."""
        return self._end.alive

    def ask(self, line: bytes, seconds: float, look: Callable[[], object] = lambda: None) -> bytes:
        """Send a line, and return the one that answers it.

        seconds: to read it, and to answer it. look: is called now and then while the program does not answer. Raises
        NotRead, TimeoutError, Ended, LineTooLong, OutOfTime at the end of the run, and what `look` raises. Then the
        program is ended: a late answer must not be taken for the answer to the next line.
        """
        try:
            self._send(line, Patience(seconds, self.pid))
            return self.line(seconds, look)
        except BaseException:
            self.end()
            raise

    def _send(self, line: bytes, patience: Patience) -> None:
        with suppress(BrokenPipeError):  # reading the answer detects that the program has ended
            while line:
                left = max(AGAIN_SECONDS_MIN, min(LOOK_SECONDS, patience.left()))
                if select.select([], [self._requests], [], left)[1]:
                    line = line[os.write(self._requests, line) :]
                    continue
                require_time()
                if patience.left() <= 0:
                    raise NotRead

    def line(self, seconds: float, look: Callable[[], object] = lambda: None) -> bytes:
        """The next line, which nobody has asked for. Raises as `ask`, but for NotRead."""
        patience = Patience(seconds, self.pid)
        while b"\n" not in self.rest:
            if len(self.rest) > LINE_BYTES_MAX:
                raise LineTooLong
            if self.can_read(min(LOOK_SECONDS, max(AGAIN_SECONDS_MIN, patience.left()))):
                if not self.read():
                    raise Ended(self.end())
                continue
            require_time()
            if patience.left() <= 0:
                raise TimeoutError
            look()
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def can_read(self, seconds: float) -> bool:
        """Whether the program has written something, or has closed its output, within this time."""
        return bool(select.select([self._answers], [], [], seconds)[0])

    def read(self) -> bytes:
        """What the program has written and nobody has read; it is also added to `rest`."""
        part = os.read(self._answers, CHUNK_BYTES)
        self.rest += part
        return part

    def read_to_the_end(self) -> None:
        """Close the input of the program, and read what it still writes for a moment."""
        self._close(self._requests)
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while len(self.rest) <= LINE_BYTES_MAX and self.can_read(max(0, deadline - time.monotonic())):
            if not self.read():
                return

    def _close(self, descriptor: int) -> None:
        self._descriptors.remove(descriptor)
        os.close(descriptor)

    def last_output(self) -> str:
        """The last line that the program wrote to its standard error; it is complete when the program was ended."""
        return (self._output.last.strip().splitlines() or [""])[-1]

    def end(self) -> int:
        """End the program, which may end by itself when its input has ended. Returns its exit code."""
        self._end()
        return self._running.end()


def _ended(running: SupervisedCommand, output: SubjectOutput, descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
    running.wait(LAST_WORDS_SECONDS)
    running.end()
    output.end()
