"""Replay counterexample files on subjects that are named: by the user, or by the file itself."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kvproof.check.counterexample.replay import Replay, ReplayStatus, replay_trace
from kvproof.check.counterexample.store import draw, load
from kvproof.check.counterexample.trace_schema import CounterexampleError
from kvproof.check.isolation.factory import factory_for
from kvproof.check.isolation.remote_search import method_called
from kvproof.check.protocol.finding import AdapterError, OutsideTable
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.runs.trust import Trust, found_above, trust
from kvproof.check.subjects import UnknownSubject

Subject = str | Callable[[], Any]  # the name of a subject, or its factory


def replay(
    path: Path, subject: Subject | None = None, isolation: bool | None = None, trusted: Trust | None = None
) -> Replay:
    """Replay a counterexample file on its own subject, or on another one.

    isolation: whether a subject that is named runs in a process of its own; None isolates every subject but kvproof's.
    trusted: which code the file may name; by default what the configuration of the repository trusts.
    """
    try:
        trace = load(path)
        make = _factory((trusted or trust()).subject_of(path, trace.subject) if subject is None else subject, isolation)
        name = subject if isinstance(subject, str) else trace.subject
        return replay_trace(path, trace, make, name, partial(method_called, make))
    except (CounterexampleError, UnknownSubject) as error:
        return Replay(ReplayStatus.ERROR, str(error), is_misnamed=True)
    except OutsideTable as error:
        return Replay(ReplayStatus.ERROR, str(error))
    except AdapterError as error:
        return Replay(ReplayStatus.ERROR, f"the adapter breaks the protocol: {error}")
    except Unsupported as error:
        return Replay(ReplayStatus.ERROR, f"the subject refuses the configuration of the trace: {error}")
    except AssertionError as error:
        return Replay(ReplayStatus.ERROR, f"a fault of kvproof, not of the subject: {error}")


def redraw(path: Path, subject: str | None = None, isolation: bool | None = None, trusted: Trust | None = None) -> Path:
    """Write the page of a counterexample file again, replayed on its own subject or on another one.

    Raises CounterexampleError, UnknownSubject, OSError.
    """
    trace = load(path)
    make = _factory(subject or (trusted or trust()).subject_of(path, trace.subject), isolation)
    return draw(path, replace(trace, subject=subject or trace.subject), make)


def assert_fixed(path: Path, subject: Subject | None = None) -> None:
    """Raise AssertionError, whose text is the refutation, unless the counterexample is fixed.

    subject: the factory of the subject, or its name; `file.py:factory` is also looked for in the folders above the
    trace. Needed if the trace names code, which a file may not choose. Raises CounterexampleError if the trace cannot
    be replayed.
    """
    __tracebackhide__ = True
    named = found_above(path, subject) if isinstance(subject, str) else subject
    done = replay(path, named, trusted=trust(command="assert_fixed(path, {name!r})"))
    if done.status is ReplayStatus.FAILED:
        raise AssertionError(done.text)
    if done.status is ReplayStatus.ERROR:
        raise CounterexampleError(done.text)


def _factory(subject: Subject, isolation: bool | None) -> Callable[[], Any]:
    return factory_for(subject, isolation) if isinstance(subject, str) else subject
