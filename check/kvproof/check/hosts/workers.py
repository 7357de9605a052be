"""Workers do units of work, each in a process of its own, and the results come back in the order of the units.

A unit is a function at the top level of a module and one argument; both must be picklable, and the result must depend
on them alone. So nothing depends on how many workers there are, on which of them does a unit, or on how often it is
done: the unit of a worker that was killed is done again by another one. A function may be a generator; then its results
arrive one by one, those of a unit after those of the unit before.

A unit may have an attribute `need`: the name of the subject without which it cannot be done. A worker that cannot make
this subject lacks something that the command has. Where workers are on several machines, another one gets the unit.

Two processes whose sources of kvproof have the same digest do a unit of work in the same way.
"""

import hashlib
import pickle
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from kvproof.check.protocol.fault_attribution import FULL

NUM_TRIES_MAX = 3

CODE = (".py", ".txt", ".json", ".c", ".h")  # the files that can change an answer


@dataclass(frozen=True)
class Handling:
    """How the units of a call are done. seconds: without a result of a unit; then its worker counts as lost.

    num_tries: of a unit whose worker was lost. is_loss_a_result: when none is left, the last result of the unit is a
    `UnitLost`, and no exception. is_ordered: the results come in the order of the units, and not in that in which they
    are done.
    """

    seconds: float = 3600.0
    num_tries: int = NUM_TRIES_MAX
    is_loss_a_result: bool = False
    is_ordered: bool = True


USUAL = Handling()
LOSS_IS_A_RESULT = Handling(is_loss_a_result=True)
UNORDERED = Handling(is_ordered=False)


@dataclass(frozen=True)
class UnitLost:
    """Nobody will bring the rest of a unit. how: the last worker ended. is_next: the loss is of the result after the
    last one that arrived; otherwise it is not known which one it is of."""

    how: str
    is_next: bool

    def __str__(self) -> str:
        return f"{NUM_TRIES_MAX} workers ended while they did the same unit, the last {self.how}"


class NoWorkers(Exception):
    """There are no workers where `--workers` says."""


class Unavailable(Exception):
    """What is needed for a unit cannot be had in this process; in another one it may be there.

    is_busy: whether it may come here too, if it is tried again.
    """

    is_busy = False


class WorkerLost(Exception):
    """The workers that did a unit were lost one after the other: they were killed, or the unit ended them."""


class WorkerLacks(WorkerLost):
    """A worker cannot do units, or those with this need. need: empty for every unit."""

    def __init__(self, reason: str, need: str = "") -> None:
        super().__init__(reason, need)
        self.reason, self.need = reason, need

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class Lack:
    """The result of a unit that was not done, because the worker lacks what it needs."""

    reason: str
    need: str


class WorkerTraceback(Exception):
    """Where in a worker an exception was raised; it is the cause of the exception here."""

    def __str__(self) -> str:
        return f"in a worker:\n{self.args[0]}"


Make = Callable[[int, int], Any]  # the object of an actor, from its number and the number of actors
Request = tuple[str, tuple[Any, ...]]  # the name of a method, and its arguments


class Lost(Enum):
    """The answer of an actor whose process has ended."""

    LOST = "lost"


class Actors(Protocol):
    """Workers that keep something between calls: each holds an object and runs its methods. Their numbers begin at 0.

    What an actor holds is lost with its process, so a caller must be able to make it again.
    """

    num: int

    @property
    def process_ids(self) -> list[int]:
        """The ids of their processes, each on its machine."""

    def answers(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Let actors run methods, all at the same time; their answers, or Lost. Raises what a method raises."""

    def replace(self, number: int) -> None:
        """Start an actor again, with a new object."""

    def close(self) -> None:
        """End every actor."""


class Workers(Protocol):
    """Processes that do units of work. name: what `--workers` calls them."""

    name: str

    def results(
        self,
        do: Callable[[Any], Any],
        units: Iterable[Any],
        handling: Handling = USUAL,
        meanwhile: Iterable[object] = (),
    ) -> Generator[Any, None, None]:
        """Yield the results of each unit; the units are drawn when a worker can do them.

        The first units begin at once. The units of several calls are done side by side; those of the first call come
        first. Closing the generator gives up the units that are under way. Raises what a unit raises, and WorkerLost.
        meanwhile: work in steps, which this process does to its end after it has drawn the last unit.
        """

    def close(self) -> None:
        """End every process that was started."""


@dataclass(frozen=True)
class Shipping:
    """How what units need reaches a machine that lacks it: four functions that a worker can import.

    place_of: where it is on this machine, if it is there. sources_of: its name and digest. packed: the place as one
    archive. at_hand: within its block, the sources are there; they come from the archive if this machine lacks them.
    """

    place_of: Callable[[str], Path | None]
    sources_of: Callable[[str], Any]
    packed: Callable[[Path], bytes]
    at_hand: Callable[[Any, Callable[[], bytes]], AbstractContextManager[None]]


class StatefulWorkers(Workers, Protocol):
    """Workers that can also be made ready, and can keep something between calls."""

    def prepare(self, do: Callable[[Any], Any], unit: Any) -> None:
        """Start workers before there are units, if they start slowly; each does this first. Its result is dropped."""

    def actors(self, make: Make) -> Actors:
        """As many actors as there are workers; who asks for them closes them. make: must be picklable."""


# What crosses between the processes -------------------------------------------------------------------------------

Outcome = tuple[bool, Any, str]  # whether the unit was done; its result, or the exception; where that was raised


class Results(list[Any]):
    """The results of a unit that has several."""


def done(do: Callable[[Any], Any], unit: Any, arrived: Callable[[Any], None] = lambda one: None) -> Outcome:
    """Do one unit in a worker. An exception that cannot be pickled becomes an AssertionError with its text.

    arrived: is called with each result of a generator, as soon as there is one.
    """
    try:
        value = do(unit)
        if not isinstance(value, Generator):
            return True, value, ""
        results = Results()
        for one in value:
            results.append(one)
            arrived(one)
        return True, results, ""
    except Exception as error:
        where = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = AssertionError(f"{type(error).__name__}: {error}")
        return False, error, where


def need_of(unit: Any) -> str:
    """The need of a unit; empty if it has none."""
    return str(getattr(unit, "need", ""))


def lack_in(outcome: Outcome, need: str) -> Lack | None:
    """What the worker lacks, if it has not done a unit of this need for such a reason."""
    _, value, _ = outcome
    if isinstance(value, Lack):
        return value
    if isinstance(value, WorkerLacks):
        return Lack(value.reason, value.need)
    if need and isinstance(value, Unavailable) and not value.is_busy:
        return Lack(str(value), need)
    if isinstance(value, OSError) and value.errno in FULL:
        return Lack(f"its disk is full: {value}", "")
    return None


class Lacks:
    """Which machines lack what units need. report: is called once for each lack of each machine."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report, self._known = report, set[tuple[str, str]]()

    def add(self, machine: str, lack: Lack) -> None:
        """Note what a machine lacks."""
        if (machine, lack.need) not in self._known:
            self._known.add((machine, lack.need))
            what = f"units of {lack.need}" if lack.need else "units"
            self._report(f"machine {machine} is given no more {what}: {lack.reason}")

    def machines(self, need: str) -> list[str]:
        """The machines that are not given a unit of this need."""
        return sorted({machine for machine, lacked in self._known if lacked in ("", need)})


def results_in(outcome: Outcome) -> list[Any]:
    """The results of a unit. Raises what it raised."""
    value = value_of(outcome)
    return list(value) if isinstance(value, Results | Generator) else [value]


def value_of(outcome: Outcome) -> Any:
    """The one result of a unit. Raises what it raised."""
    is_done, value, where = outcome
    if not is_done:
        raise value from WorkerTraceback(where)
    return value


@cache
def code_digest() -> str:
    """The digest of the files of kvproof that are imported; the folders in which they are do not matter."""
    return digest_of({Path(one).resolve() for one in import_module("kvproof").__path__})


def digest_of(folders: Iterable[Path]) -> str:
    """The digest of the names, relative to their folder, and contents of the code in these folders."""
    found = sorted(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n" for name, file in files_of(folders))
    return hashlib.sha256("".join(found).encode()).hexdigest()


def files_of(folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Each file of code in these folders, after its name relative to its folder."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.suffix in CODE and path.is_file():
                yield path.relative_to(folder).as_posix(), path
