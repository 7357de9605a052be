"""The functions and classes in the source files of a release: where each is, and a digest of its lines.

Nothing of the release runs. A digest leaves out comments on lines of their own, empty lines, docstrings and the
indentation of the whole. So it tells when the code of a function has changed, and does not depend on Python's version.
"""

import ast
import hashlib
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
DIGEST_LENGTH = 12


class Function(NamedTuple):
    """A function or class. line: of its `def` or `class`. digest: of its lines."""

    line: int
    digest: str


@lru_cache(maxsize=256)
def functions_in(file: Path) -> dict[str, Function]:
    """The functions and classes of a file by their qualified names; nothing if there is no such file.

    Raises SyntaxError, ValueError, OSError.
    """
    if not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    return {name: Function(node.lineno, _digest(node, lines)) for name, node in _definitions(ast.parse(text))}


def _definitions(node: ast.AST, outer: str = "") -> Iterator[tuple[str, Definition]]:
    """Those on the top level and in classes, also under an `if` or `try`; of two with one name, the last one counts."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, Definition):
            yield f"{outer}{one.name}", one
            if isinstance(one, ast.ClassDef):
                yield from _definitions(one, f"{outer}{one.name}.")
        elif not isinstance(one, ast.expr):
            yield from _definitions(one, outer)


def _digest(node: Definition, lines: list[str]) -> str:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    left_out = {line for one in ast.walk(node) if isinstance(one, Definition) for line in _docstring(one)}
    kept = [lines[at - 1] for at in range(first, (node.end_lineno or first) + 1) if at not in left_out]
    kept = [one.rstrip() for one in kept if one.strip() and not one.lstrip().startswith("#")]
    text = textwrap.dedent("\n".join(kept))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]


def _docstring(node: Definition) -> range:
    """The lines of a docstring."""
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str())) as found, *_]:
            return range(found.lineno, (found.end_lineno or found.lineno) + 1)
    return range(0)
