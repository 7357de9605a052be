"""The call graph of a text, and the fields that its functions read and write, directly or through calls."""

import ast
import functools
from collections.abc import Iterator

from kvproof.models.translation.text import Text
from kvproof.spec.syntax_trees import target_of


@functools.lru_cache(maxsize=4096)
def nodes_of(function: ast.FunctionDef) -> tuple[ast.AST, ...]:
    """Every node of a function, as `ast.walk` yields them; texts share the functions that they do not replace."""
    return tuple(ast.walk(function))


def calls(text: Text, name: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls of other functions of the text in a function, with the name of each callee."""
    for node in nodes_of(text.functions[name][0]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in text.functions:
            yield node.func.id, node


def reached(text: Text, name: str) -> list[str]:
    """The function itself, and all functions that it calls, directly or through others."""
    found = [name]
    for one in found:
        found += [callee for callee in dict.fromkeys(called for called, _ in calls(text, one)) if callee not in found]
    return found


@functools.lru_cache(maxsize=1024)
def fields_read(text: Text, name: str) -> frozenset[str]:
    """The fields that a function reads or writes, directly or through calls."""
    nodes = (node for one in reached(text, name) for node in nodes_of(text.functions[one][0]))
    return frozenset({node.attr for node in nodes if isinstance(node, ast.Attribute)} & text.system.fields.keys())


def fields_written(text: Text, name: str) -> set[str]:
    """The fields that a rule or step assigns, directly or through calls."""
    found = set()
    for one in reached(text, name):
        for node in nodes_of(text.functions[one][0]):
            target, is_field = target_of(node) if isinstance(node, ast.stmt) else (None, False)
            if target is not None and is_field:
                found.add(target)
    return found
