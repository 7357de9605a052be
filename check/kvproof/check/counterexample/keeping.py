"""Keep a finding in any case: write it down as it was found, then replay, shrink, describe and save it.

A finding must not be lost because a later step fails. So the raw run (seed, configuration, operations) is on disk
before anything else is done with it. If a step fails by a fault of kvproof, the finding is kept as the steps before
have left it, the failure is reported with the finding, and the raw run stays. Otherwise the raw run is removed when
the counterexample is saved.

An `AdapterError` is raised: then what the subject showed cannot be believed. The raw run stays also then.
"""

import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from kvproof.check.counterexample.changed_lines import fields_of
from kvproof.check.counterexample.steps import narrated
from kvproof.check.counterexample.store import (
    Factory,
    can_be_drawn,
    draw,
    make_trace,
    raw_trace,
    save_raw,
    save_test,
    save_trace,
)
from kvproof.check.hosts.time_limit import HANG_SECONDS, OutOfTime, calls_take_at_most
from kvproof.check.oracle.method_called import Blame
from kvproof.check.oracle.repetition import confirm
from kvproof.check.oracle.replay import Counterexample, is_hang
from kvproof.check.protocol.fault_attribution import lack_of
from kvproof.check.protocol.finding import AdapterError, error_text
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.subjects.loading.download import default_cache
from kvproof.check.subjects.registry import folder_of_checkout
from kvproof.spec.trace import CodePlace, EnteredCode, Trace

T = TypeVar("T")
Place = TypeVar("Place", CodePlace, EnteredCode)


def without_home(place: Place, subject: str = "") -> Place:
    """The place, with a file of a release, a checkout or an installed package named from the folder of its package.

    What is saved is committed and shared: it does not say where the cache or the environment of its user lies. subject:
    its name, which may be that of a checkout.
    """
    path = Path(place.file)
    if not path.is_absolute():
        return place
    given: list[Path] = [folder] if (folder := folder_of_checkout(subject)) is not None else []
    roots = [root for root in (default_cache(), *map(Path, sys.path), *given) if root.is_absolute()]
    above = [root for root in roots if path.is_relative_to(root)]
    nearest = max(above, key=lambda root: len(root.parts), default=None)
    return place if nearest is None else replace(place, file=path.relative_to(nearest).as_posix())


@dataclass
class KeptFinding:
    """A finding that is kept.

    found: its shortest run so far. trace: this run as data. path: the file of the trace, if it is saved. raw: the file
    of the run as it was found, while it is there. problems: the steps that failed, as sentences; tracebacks: of these
    failures. unsaved: why the disk refused a file.
    """

    found: Counterexample
    trace: Trace | None = None
    path: Path | None = None
    raw: Path | None = None
    problems: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    unsaved: OSError | None = None

    @property
    def text(self) -> str:
        """The text of the finding, and the steps that failed."""
        found = self.found
        lines = [narrated(found.finding, found.config, found.operations), *self.problems]
        if self.problems and self.raw is not None:
            lines.append(f"the run as it was found is in {self.raw}")
        return "\n".join(lines)

    def keep(
        self,
        folder: Path,
        subject: str,
        judge: str,
        seed: int,
        *,
        make: Factory,
        shorten: Callable[[Counterexample], Counterexample],
        locate: Callable[[Counterexample], Blame],
        num_operations_before: int = 0,
    ) -> None:
        """Save the shortest run that `shorten` gives, if the subject repeats the finding. Raises AdapterError.

        locate: gives where in the code of the manager a run breaks.
        """
        found, context = self.found, (judge, seed, num_operations_before)
        with suppress(OSError):  # then what is saved below fails too, and that is reported
            self.raw = save_raw(folder, subject, found, *context)
        self.found = self._attempt("the replay", lambda: confirm(make, found), found)
        if self.found.finding.property != "nondeterministic":
            self.found = self._attempt("shrinking", lambda: shorten(self.found), self.found)
        short = self.found
        self.trace = self._attempt("the conversion to data", lambda: raw_trace(subject, short, *context), None)
        if self.trace is not None:
            with calls_take_at_most(HANG_SECONDS) if is_hang(short.finding) else nullcontext():
                self.trace = self._attempt(
                    "the description of the steps", lambda: make_trace(subject, short, *context, make=make), self.trace
                )
            blame = self._attempt("the search for the method", lambda: locate(short), Blame())
            self.trace = replace(self.trace, **fields_of(blame))
            if self.trace.method is not None:
                self.trace.method = without_home(self.trace.method, subject)
            self.trace.frames = [without_home(one, subject) for one in self.trace.frames]
            self.trace.entered = [without_home(one, subject) for one in self.trace.entered]
            self._save(folder, self.trace, make)
        if self.raw is not None and self.path is not None and not self.problems:
            with suppress(OSError):
                self.raw.unlink()
            self.raw = None

    def _save(self, folder: Path, trace: Trace, make: Factory) -> None:
        path = self.path = self._attempt("saving", lambda: save_trace(folder, trace), None)
        if path is not None:
            self._attempt("the regression test", lambda: save_test(path, trace), None)
            if can_be_drawn(trace):
                self._attempt("the page", lambda: draw(path, trace, make, self.found.finding), path)

    def _attempt(self, step: str, do: Callable[[], T], otherwise: T) -> T:
        """The result of a step, or `otherwise` if it fails. Raises AdapterError."""
        try:
            return do()
        except AdapterError:
            raise
        except OSError as error:
            self.unsaved = self.unsaved or error
        except OutOfTime:
            self.problems.append(f"{step} was not done: the time limit (--budget) was over")
        except Unsupported as error:
            self.problems.append(f"{step} could not be done: the subject refused the configuration now: {error}")
        except (Exception, SystemExit) as error:
            if lack := lack_of(error):
                self.problems.append(f"{step} could not be done: {lack}")
                return otherwise
            what = f"{type(error).__name__}: {error_text(error)}".splitlines()[0]
            self.problems.append(f"{step} failed by a fault of kvproof: {what}")
            self.tracebacks.append("".join(traceback.format_exception(error)))
        return otherwise
