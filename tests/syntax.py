"""Python files as syntax trees, for the tests about how the project is built: they read hundreds of files."""

import ast
import gc
from collections.abc import Iterator
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """The tree of a file. The search for garbage in it would take longer than to read it, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if was_enabled:
            gc.enable()


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """A tree and every statement in it, as `ast.walk` gives them, but without the expressions: ten times as many."""
    left = [tree]
    while left:
        node = left.pop(0)
        yield node
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            found = getattr(node, field, None)
            left += found if isinstance(found, list) else ()
