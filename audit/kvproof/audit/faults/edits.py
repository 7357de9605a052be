"""What a fault changes in source code: a text is replaced by another, in one place.

A text that is not found exactly once, or whose replacement means the same or is no Python, is never planted: the fault
would count as one that nobody notices.
"""

import ast
from dataclasses import dataclass
from functools import cache
from textwrap import dedent

from kvproof.check.protocol.planted_fault import PlantedFault


class NotPlanted(Exception):
    """The text that a fault replaces is not there, or the engine is not."""


@dataclass(frozen=True)
class Edit:
    """One replacement. function: in which, with its class; empty for the whole file. old, new: the texts.

    file: below the root of a checkout, or of the sources of a release; empty for a function of a specification's text.
    statement: if `old` is a whole statement, which one of those that read alike; None if it is any text.
    """

    function: str
    old: str
    new: str
    file: str = ""
    statement: int | None = None

    def changed(self, source: str) -> str:
        """The source of the file after the change. Raises NotPlanted."""
        first, last = self._lines(source)
        lines = source.splitlines(keepends=True)
        text = "".join(lines[first:last])
        if (count := text.count(self.old)) != 1:
            place = " in ".join(filter(None, (self.function, self.file)))
            raise NotPlanted(f"{place} has {self.old!r} {count} times, not once")
        changed = text.replace(self.old, self.new)
        try:
            is_same = ast.dump(ast.parse(dedent(changed))) == ast.dump(ast.parse(dedent(text)))
        except SyntaxError as error:
            raise NotPlanted(f"with {self.new!r}, {self.function or self.file} is no Python: {error}") from error
        if is_same:
            raise NotPlanted(f"{self.new!r} means the same as {self.old!r}")
        return "".join((*lines[:first], changed, *lines[last:]))

    def _lines(self, source: str) -> tuple[int, int]:
        """The lines of the function, or of the file, from 0, the last one excluded. Raises NotPlanted."""
        if not self.function:
            return 0, len(source.splitlines())
        inside: ast.AST = _parsed(source)
        for name in self.function.split("."):
            found = [
                node
                for node in ast.iter_child_nodes(inside)
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name
            ]
            if not found:
                raise NotPlanted(f"{self.file} has no function {self.function}")
            inside = found[-1]  # of the functions of a property, the setter is the last one
        assert isinstance(inside, (ast.ClassDef, ast.FunctionDef))
        return inside.lineno - 1, inside.end_lineno or inside.lineno


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


Fault = PlantedFault[tuple[Edit, ...]]


def release_of(fault: Fault) -> str:
    """The release that the fault is planted in; empty for kvproof's own code."""
    return fault.subject.partition("==")[2]
