"""Plant a fault in a copy of a manager: one text within one function is replaced.

The copy is a folder in which only the changed file is new; everything else is linked. A subject in a process of its own
imports the copy instead of the original. A fault whose text is not found exactly once in its function, or whose
replacement means the same or is no Python, is never planted: it would count as one that nobody finds.
"""

import ast
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent

import kvproof.impl
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.protocol.environment import variable
from kvproof.check.subjects.loading import EngineError, download

IMPL = Path(kvproof.impl.__path__[0])


class NotPlanted(Exception):
    """The text that a fault replaces is not there, or the engine is not."""


@dataclass(frozen=True)
class Fault:
    """One small fault of the code under a subject.

    subject: the one that is judged, with its release if it is an engine, or an executor of kvproof's. file: within
    `kvproof/impl`, or within the sources of the release. function: its name, with its class. old, new: the text that is
    replaced, and by what. sentence: what is wrong. equivalent: why no caller can notice it; empty if a caller can.
    blind_spot: the row of `docs/blind-spots.md` that says why `kvproof verify` does not find it; empty if it does.
    """

    name: str
    subject: str
    kind: str
    file: str
    function: str
    old: str
    new: str
    sentence: str
    equivalent: str = ""
    blind_spot: str = ""

    @property
    def id(self) -> str:
        """The name of the fault, after that of its subject."""
        return f"{self.subject.partition('==')[0]}/{self.name}"

    @property
    def release(self) -> str:
        """The release that the fault is planted in; empty for kvproof's own code."""
        return self.subject.partition("==")[2]

    def changed(self, source: str) -> str:
        """The source with the fault. Raises NotPlanted."""
        first, last = self._lines(source)
        lines = source.splitlines(keepends=True)
        text = "".join(lines[first:last])
        if (count := text.count(self.old)) != 1:
            raise NotPlanted(f"{self.id}: {self.function} in {self.file} has {self.old!r} {count} times, not once")
        changed = text.replace(self.old, self.new)
        try:
            is_same = ast.dump(ast.parse(dedent(changed))) == ast.dump(ast.parse(dedent(text)))
        except SyntaxError as error:
            raise NotPlanted(f"{self.id}: with {self.new!r}, {self.function} is no Python: {error}") from error
        if is_same:
            raise NotPlanted(f"{self.id}: {self.new!r} means the same as {self.old!r}")
        return "".join((*lines[:first], changed, *lines[last:]))

    def _lines(self, source: str) -> tuple[int, int]:
        """The lines of the function, from 0, the last one excluded. Raises NotPlanted."""
        inside: ast.AST = _parsed(source)
        for name in self.function.split("."):
            found = [
                node
                for node in ast.iter_child_nodes(inside)
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name
            ]
            if not found:
                raise NotPlanted(f"{self.id}: {self.file} has no function {self.function}")
            inside = found[-1]  # of the functions of a property, the setter is the last one
        assert isinstance(inside, (ast.ClassDef, ast.FunctionDef))
        return inside.lineno - 1, inside.end_lineno or inside.lineno

    def plain(self) -> Path:
        """The folder with the unchanged sources. Raises NotPlanted if the engine is not downloaded."""
        if not self.release:
            return IMPL
        try:
            return download.find(download_name(self.subject), self.release)
        except EngineError as error:
            raise NotPlanted(str(error)) from error

    def source(self) -> str:
        """The unchanged file. Raises NotPlanted."""
        try:
            return (self.plain() / self.file).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise NotPlanted(f"{self.id}: there is no file {self.file} in {self.plain()}") from error


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def download_name(subject: str) -> str:
    """The engine of a subject, as its releases are called in the cache: "vllm" for "vllm-v1==0.33.0"."""
    return subject.partition("==")[0].partition("-")[0]


@contextmanager
def copied(fault: Fault) -> Iterator[str]:
    """A folder with the copy: a cache of engines, or a folder to import `kvproof.impl` from. Raises NotPlanted."""
    changed, plain = fault.changed(fault.source()), fault.plain()
    with tempfile.TemporaryDirectory(prefix="kvproof-fault-") as folder:
        root = Path(folder)
        _link_all_but(
            plain, root / plain.name if fault.release else root / "kvproof" / "impl", Path(fault.file), changed
        )
        yield folder


@contextmanager
def planted(fault: Fault) -> Iterator[RemoteFactory]:
    """A factory of the subject with the fault. Raises NotPlanted, and UnknownSubject if it cannot be made."""
    with copied(fault) as folder:
        # The process of a subject takes its path and its environment from this one.
        with variable(download.CACHE, folder) if fault.release else _first_on_path(folder):
            factory = RemoteFactory(fault.subject)
        try:
            yield factory
        finally:
            factory.close()


@contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _link_all_but(plain: Path, copy: Path, file: Path, text: str) -> None:
    """Make `copy` a folder like `plain`, in which `file` has another text."""
    first, *others = file.parts
    copy.mkdir(parents=True)
    for entry in plain.iterdir():
        if entry.name not in (first, "__pycache__"):
            (copy / entry.name).symlink_to(entry)
    if others:
        _link_all_but(plain / first, copy / first, Path(*others), text)
    else:
        (copy / first).write_text(text, encoding="utf-8")
