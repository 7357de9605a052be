"""Replay counterexample files on subjects that are named: by the user, or by the file itself.

A file, such as a trace or the progress of a hunt, never chooses the code that runs. Such a file may come from anybody:
from a pull request's artifact, from a bug report. A name of kvproof's table, with or without a release, may come from a
file. A command (`pipe:...`), a module, a file or the path of a checkout is code, and is taken from a file only if the
user said so: on the command line (`--subject`, `--trust`), in the text of a test, or under `trusted_subjects` in the
configuration of the repository (`runs/configuration.py`).
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from kvproof.check.counterexample.plain_script import PlainScript, write_script
from kvproof.check.counterexample.replay import Replay, ReplayStatus, replay_trace
from kvproof.check.counterexample.store import draw, load, story_of
from kvproof.check.counterexample.trace_schema import CounterexampleError, config_of, operations_of
from kvproof.check.isolation.factory import factory_for
from kvproof.check.isolation.remote_search import method_called, plain_run
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import AdapterError, Finding, OutsideTable
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.runs.configuration import TRUSTED, find_configuration, in_folder, trusted_subjects
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.plugins import plugins
from kvproof.check.subjects.registry import NAMED
from kvproof.spec.trace import names_code

REPLAY = "kvproof replay {file} --subject {subject}"

Subject = str | Callable[[], Any]  # the name of a subject, or its factory


class UntrustedSubject(UnknownSubject):
    """A file names a subject that is code, and the user did not say that it may run."""


@dataclass(frozen=True)
class Trust:
    """What the user said about the subjects that files name.

    patterns: names that may come from a file; `*` and `?` stand for any characters. folder: where a trusted relative
    path is looked for. is_total: any name may come from a file. command: what to type, or to write in a test, to trust
    one file.
    """

    patterns: tuple[str, ...] = ()
    folder: Path = Path()
    is_total: bool = False
    command: str = REPLAY

    def subject_of(self, path: Path, name: str) -> str:
        """The subject that the file names, in the form in which it can be made. Raises UntrustedSubject."""
        if self.is_total:
            return found_above(path, name)
        known = name.partition("==")[0]
        row = NAMED.get(known)
        is_code = names_code(name) or (row is not None and row.is_checkout) or (row is None and known in plugins())
        if not is_code:
            return name
        if ".." not in PurePath(name).parts and any(fnmatchcase(name, pattern) for pattern in self.patterns):
            return in_folder(name, self.folder)
        command = self.command.format(file=shlex.quote(str(path)), subject=shlex.quote(name), name=name)
        raise UntrustedSubject(
            f"{path} names the subject {name!r}, which is code, and kvproof runs no code because a file names it. "
            f"If you trust this code, type: {command}   (or list it in kvproof.toml under {TRUSTED})"
        )


def trust(folder: Path = Path(), is_total: bool = False, command: str = REPLAY) -> Trust:
    """What the configuration in force in the folder and the command line say. Raises DocumentError."""
    found = find_configuration(folder)
    return Trust(trusted_subjects(found), folder if found is None else found.folder, is_total, command)


def found_above(path: Path, name: str) -> str:
    """A subject `path/to/file.py:factory` is looked for in the working folder, then in each folder above the file."""
    return in_folder(name, Path(), *path.resolve().parents)


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


def write_plain(
    path: Path, finding: Finding, subject: str | None, isolation: bool | None, trusted: Trust
) -> tuple[Path, PlainScript]:
    """Write a counterexample file that a subject fails as plain Python. finding: what its replay found.

    Raises CounterexampleError, UnknownSubject, OSError.
    """
    trace = load(path)
    name = subject or trusted.subject_of(path, trace.subject)
    found = Counterexample(config_of(trace, path), operations_of(trace, path), finding)
    run = plain_run(_factory(name, isolation), found)
    return write_script(path, replace(trace, subject=name), run, story_of(trace, finding))


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
