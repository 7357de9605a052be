"""Replay counterexample files on subjects that are named: by the user, or by the file itself."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvproof.check.counterexample.replay import Replay, ReplayStatus, replay_trace
from kvproof.check.counterexample.store import draw, load
from kvproof.check.counterexample.trace_schema import CounterexampleError
from kvproof.check.isolation.factory import factory_for
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.subjects import UnknownSubject

Subject = str | Callable[[], Any]  # the name of a subject, or its factory


def replay(path: Path, subject: Subject | None = None, isolation: bool | None = None) -> Replay:
    """Replay a counterexample file on its own subject, or on another one.

    isolation: whether a subject that is named runs in a process of its own; None isolates every subject but kvproof's.
    """
    try:
        trace = load(path)
        make = _factory(path, trace.subject if subject is None else subject, isolation, is_default=subject is None)
        return replay_trace(path, trace, make, subject if isinstance(subject, str) else trace.subject)
    except (CounterexampleError, UnknownSubject) as error:
        return Replay(ReplayStatus.ERROR, str(error), is_misnamed=True)
    except AdapterError as error:
        return Replay(ReplayStatus.ERROR, f"the adapter breaks the protocol: {error}")
    except Unsupported as error:
        return Replay(ReplayStatus.ERROR, f"the subject refuses the configuration of the trace: {error}")
    except AssertionError as error:
        return Replay(ReplayStatus.ERROR, f"a fault of kvproof, not of the subject: {error}")


def redraw(path: Path, subject: str | None = None, isolation: bool | None = None) -> Path:
    """Write the page of a counterexample file again, replayed on its own subject or on another one.

    Raises CounterexampleError, UnknownSubject, OSError.
    """
    trace = load(path)
    name = subject or trace.subject
    make = _factory(path, name, isolation, is_default=subject is None)
    return draw(path, replace(trace, subject=name), make)


def assert_fixed(path: Path, subject: Subject | None = None) -> None:
    """Raise AssertionError, whose text is the refutation, unless the counterexample is fixed.

    Raises CounterexampleError if it cannot be replayed.
    """
    __tracebackhide__ = True
    done = replay(path, subject)
    if done.status is ReplayStatus.FAILED:
        raise AssertionError(done.text)
    if done.status is ReplayStatus.ERROR:
        raise CounterexampleError(done.text)


def _factory(path: Path, subject: Subject, isolation: bool | None, *, is_default: bool) -> Callable[[], Any]:
    if not isinstance(subject, str):
        return subject
    return factory_for(_found_from(path, subject) if is_default else subject, isolation)


def _found_from(path: Path, subject: str) -> str:
    """A subject `path/to/file.py:factory` is looked for in the working folder, then in each folder above the file."""
    file, separator, factory = subject.rpartition(":")
    if separator and file.endswith(".py") and not Path(file).exists():
        for folder in path.resolve().parents:
            if (folder / file).is_file():
                return f"{folder / file}:{factory}"
    return subject
