"""What hunts for the faults of the corpus: a default hunt of kvproof, or a program of somebody else.

A tool gets a subject with its release, a seed and an effort, and an empty folder. It writes each run that it takes for
a fault to this folder, as a file that `kvproof replay` reads. So nobody needs to believe a tool: the runs are replayed,
on the release and on one without the fault.

A program is called as `PROGRAM SUBJECT SEED OPERATIONS FOLDER`, and ends with 0 or 1.
"""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

from kvproof.check.counterexample.store import load
from kvproof.check.hosts.program import finished, how_it_ended
from kvproof.check.hunting.corpus.factories import Factories
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.head import here
from kvproof.check.hunting.hunt import Searches
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.runs.effort import Effort, effort_of
from kvproof.check.runs.session import StageBudget, processor_seconds
from kvproof.check.runs.store import Store
from kvproof.check.subjects import UnknownSubject
from kvproof.reports.result import Check

PROGRAM_SECONDS = 6 * 3600.0


class NotHunted(Exception):
    """The tool could not do its work; the text says why."""


@dataclass(frozen=True)
class Seen:
    """A run that a tool takes for a fault.

    num_operations: of the tool until then. seconds: of processor time; of a program, until its end. by: the search.
    """

    file: Path
    num_operations: int
    seconds: float
    by: str


@dataclass
class Work:
    """What a tool has done so far. seconds: of processor time."""

    num_operations: int = 0
    seconds: float = 0.0


Tool = Callable[[str, int, str, Path, Work, Factories], Iterator[Seen]]  # subject, seed, effort, folder


def hunt_by_kvproof(subject: str, seed: int, effort: str, folder: Path, work: Work, makes: Factories) -> Iterator[Seen]:
    """A hunt with default settings, its findings as they come. Raises NotHunted."""
    given: Effort = effort_of(effort, None, subject)
    began = processor_seconds()
    try:
        make = makes(subject)
        one = make()
        saving = Saving(make, subject, seed, Store(folder))
        saving.max_operations = given.shrinking_operations
        before, files = 0, set[str]()
        for stage in Searches(saving, one, given).stages(here(make)):
            done = before

            def advance(count: int, before: int = before) -> None:
                nonlocal done
                done = max(done, before + count)

            for output in stage.run(StageBudget(seed, inf, advance)):
                work.num_operations, work.seconds = done, processor_seconds() - began
                if isinstance(output, Check) and output.trace and output.trace not in files and not output.excused:
                    files.add(output.trace)
                    yield Seen(folder / output.trace, done, work.seconds, stage.name)
            before = done
    except (UnknownSubject, AdapterError) as error:
        raise NotHunted(str(error)) from error
    work.num_operations, work.seconds = before, processor_seconds() - began


def by_program(command: str) -> Tool:
    """The tool that this command is."""

    def hunt(subject: str, seed: int, effort: str, folder: Path, work: Work, makes: Factories) -> Iterator[Seen]:
        num_operations, began = effort_of(effort, None, subject).operations, processor_seconds()
        words = [*shlex.split(command), subject, str(seed), str(num_operations), str(folder)]
        try:
            done = finished(words, PROGRAM_SECONDS)
        except (OSError, TimeoutError) as error:
            raise NotHunted(f"{command}: {error}") from error
        if done.code not in (0, 1):
            last = done.errors.strip().rpartition("\n")[2]
            raise NotHunted(f"{command} {how_it_ended(done.code)}: {last}")
        work.num_operations, work.seconds = num_operations, processor_seconds() - began
        found = [(load(path).num_operations_before, path) for path in sorted(folder.glob("*.json"))]
        for num_before, path in sorted(found):
            yield Seen(path, num_before, work.seconds, "program")

    return hunt


def tool_of(command: str | None) -> Tool:
    """The tool with this command; kvproof without one."""
    return hunt_by_kvproof if command is None else by_program(command)
