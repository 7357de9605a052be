"""A host that the product does not have: workers that a command of the user starts, for example on another machine.

It is written as it would stand in `hosts/command.py`; `test_adding_a_host.py` adds it. `--workers "command:ssh HOST
python …"` names it. The command is asked over its standard input and output: a line is a unit, and the next line is
what came of it.
"""

import base64
import os
import pickle
import shlex
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any

from kvproof.check.hosts.line_host import Ended, LineHost, LineTooLong
from kvproof.check.hosts.output import SubjectOutput
from kvproof.check.hosts.worker_process import LocalActors
from kvproof.check.hosts.workers import (
    USUAL,
    Handling,
    Make,
    Outcome,
    Shipping,
    UnitLost,
    WorkerLost,
    done,
    results_in,
)

PREFIX = "command:"


class CommandWorkers:
    """One worker, which the command starts. It is started again when it was lost."""

    def __init__(self, command: str) -> None:
        self.name = f"{PREFIX}{command}"
        self._command = shlex.split(command)
        self._host: LineHost | None = None

    def prepare(self, do: Callable[[Any], Any], unit: Any) -> None:
        """As `Workers.prepare`."""
        self._try(do, unit, USUAL)

    def results(
        self,
        do: Callable[[Any], Any],
        units: Iterable[Any],
        handling: Handling = USUAL,
        meanwhile: Iterable[object] = (),
    ) -> Generator[Any, None, None]:
        """As `Workers.results`."""
        for unit in units:
            yield from self._results_of(do, unit, handling)
        deque(meanwhile, maxlen=0)

    def actors(self, make: Make) -> LocalActors:
        """As `StatefulWorkers.actors`; they are processes of this machine."""
        return LocalActors(1, make)

    def close(self) -> None:
        """End the worker."""
        if self._host is not None:
            self._host.end()

    def _results_of(self, do: Callable[[Any], Any], unit: Any, handling: Handling) -> list[Any]:
        how = ""
        for _ in range(handling.num_tries):
            came = self._try(do, unit, handling)
            if not isinstance(came, str):
                return results_in(came)
            how = came
        if handling.is_loss_a_result:
            return [UnitLost(how, is_next=True)]
        raise WorkerLost(f"{self.name}: its process {how}, {handling.num_tries} times in the same unit: {unit}")

    def _try(self, do: Callable[[Any], Any], unit: Any, handling: Handling) -> Outcome | str:
        """What came of the unit; how the worker was lost, if it was."""
        if self._host is None:
            self._host = LineHost(
                self._command,
                SubjectOutput(is_printed=False),
                variables={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        try:
            outcome: Outcome = _unpacked(self._host.ask(_packed((do, unit)), handling.seconds))
            return outcome
        except Ended as error:
            how = str(error)
        except TimeoutError:
            how = f"gave no answer for {handling.seconds:,.0f} s"
        except (LineTooLong, ValueError, pickle.UnpicklingError):
            how = "sent what is no message"
        self._host.end()
        self._host = None
        return how


def serve() -> None:
    """The program of a worker: do a unit for each line. What a unit prints is no message."""
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        os.write(answers, _packed(done(*_unpacked(line))))


def _packed(message: Any) -> bytes:
    return base64.b64encode(pickle.dumps(message)) + b"\n"


def _unpacked(line: bytes) -> Any:
    return pickle.loads(base64.b64decode(line.removesuffix(b"\n"), validate=True))


# In hosts/choice.py, a row of `KINDS`: which texts of --workers name it, and how it is opened.


def is_command(workers: str) -> bool:
    """Whether `--workers` names a command."""
    return workers.startswith(PREFIX)


def opened(workers: str, shipping: Shipping | None) -> CommandWorkers:
    """The workers of the command."""
    return CommandWorkers(workers.removeprefix(PREFIX))
