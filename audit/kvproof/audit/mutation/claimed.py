"""Statements of kvproof's own code whose effect is claimed: without the statement, an obligation is open.

A line that runs while a proof is made need not matter to it. So each statement of the functions that run there is left
out, one at a time, in a copy of `impl/`, and the obligations about code are made and asked again. Statements that
contain others, such as `if` and `for`, count by what they contain.

Run as a program, this module prints the table of which `docs/proofs.md` has the sums. It takes about ten minutes of
processor time.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kvproof.audit.faults.catalogue import CODE, IMPL
from kvproof.audit.faults.edits import Edit, Fault
from kvproof.audit.faults.planting import ROOT
from kvproof.audit.mutation.code import SUITES_OF_CODE
from kvproof.audit.mutation.process_judges import proof_notices
from kvproof.models.concolic.constructs import followed
from kvproof.models.concolic.refusal import short
from kvproof.models.suites import BOUNDED, obligations_of

MODULES = (  # of the block manager itself
    *("admission", "block_arithmetic", "block_manager", "cached_blocks", "content", "device_blocks", "evictor"),
    *("growth", "manager_state", "swapping", "table"),
)
CONTAINS_OTHERS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.Match)


@dataclass(frozen=True)
class Statement:
    """A statement of a function. file: below the root of a checkout. suites: those that run the function."""

    file: str
    function: str
    line: int
    suites: tuple[str, ...]

    @cached_property
    def left_out(self) -> Fault:
        """The fault in which `pass` stands in its place."""
        source = (ROOT / self.file).read_text(encoding="utf-8")
        node = next(one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.stmt) and one.lineno == self.line)
        lines = source.splitlines(keepends=True)
        lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + "pass\n"]
        edit = Edit("", source, "".join(lines), self.file)
        return Fault(f"{CODE}/{self.function}:{self.line} is left out", (edit,), kind=CODE)

    def claimed_by(self) -> str:
        """The first suite in which an obligation is open without the statement; empty if there is none."""
        return next((suite for suite in self.suites if proof_notices(self.left_out, suite)), "")


def statements() -> list[Statement]:
    """Every statement of the functions that run while obligations about code are made, in order."""
    ran: dict[tuple[str, int], list[str]] = {}  # by file and first line: the suites
    for suite in SUITES_OF_CODE:
        with followed() as functions:
            for _ in obligations_of(suite):
                pass
        for code in functions:
            ran.setdefault((code.co_filename, code.co_firstlineno), []).append(suite)
    return [one for file in sorted({file for file, _ in ran}) for one in _statements_of(Path(file), ran)]


def _statements_of(file: Path, ran: dict[tuple[str, int], list[str]]) -> Iterator[Statement]:
    place = f"impl/kvproof/{short(str(file))}"
    for name, function in _functions_of(file):
        first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
        suites = tuple(ran.get((str(file), first), ()))
        for one in _leaves(function) if suites else ():
            yield Statement(place, name, one.lineno, suites)


def num_statements(modules: tuple[str, ...] = MODULES) -> int:
    """The number of statements in the functions of some modules."""
    files = (ROOT / IMPL / f"{name}.py" for name in modules)
    return sum(len(list(_leaves(function))) for file in files for _, function in _functions_of(file))


def _functions_of(file: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods of a file, with their names."""
    for owner in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        prefix = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
        for part in owner.body if isinstance(owner, (ast.ClassDef, ast.Module)) else ():
            if isinstance(part, ast.FunctionDef):
                yield prefix + part.name, part


def _leaves(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    for one in ast.walk(function):
        is_text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        if isinstance(one, ast.stmt) and not isinstance(one, CONTAINS_OTHERS) and not is_text:
            yield one


def table(found: dict[Statement, str]) -> Iterator[str]:
    """The lines of the table: each function that runs, and how many of its statements are claimed for every size, for
    small objects only, or by nobody; then the same of all functions that run, and of all of the manager.
    """
    yield "| function | statements | every size | at most four blocks | no claim |"
    yield "| --- | --- | --- | --- | --- |"
    for function in dict.fromkeys(one.function for one in found):
        by = [suite for one, suite in found.items() if one.function == function]
        yield _row(f"`{function}`", len(by), by)
    yield _row("all of these", len(found), list(found.values()))
    manager = [suite for one, suite in found.items() if Path(one.file).stem in MODULES]
    yield _row("all of the manager", num_statements(), manager)


def _row(name: str, num: int, by: list[str]) -> str:
    bounded = sum(suite in BOUNDED for suite in by)
    for_every_size = len(by) - bounded - by.count("")
    return f"| {name} | {num} | {for_every_size} | {bounded} | {num - for_every_size - bounded} |"


if __name__ == "__main__":
    done: dict[Statement, str] = {}
    for statement in statements():
        done[statement] = statement.claimed_by()
        print(statement.function, statement.line, done[statement] or "no claim", file=sys.stderr, flush=True)
    print("\n".join(table(done)))
