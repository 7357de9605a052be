"""Digests of parts of the text of a specification, and of everything else that obligations are made of.

The digest of a function has its syntax tree and the lines in it, counted from its first one. Everything else is the
files of the specification, of kvproof's own managers and of the prover, and Python's version. In a file of the text
the body of a function is left out, unless code outside of functions may run it: so the digest has what decorators and
annotations say, the fields, the constants and the order of all functions.
"""

import ast
import functools
import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kvproof.check.cli.prove_kept import folders
from kvproof.check.workers.sources import files_of
from kvproof.models.translation.text import Text
from kvproof.spec.store.machine import STORES
from kvproof.spec.systems import BLOCK_MANAGERS

# Of a function that is given to these, they read the head and the docstring, which is a claim's or contract's sentence.
READ_THE_HEAD = ("contract", "least", "real", "derived", "ghost")


def digest_of_part(rest: str, text: Text, names: Iterable[str]) -> str:
    """The digest of these functions of a text. rest: that of everything else."""
    lines = [f"{name} {_digest_of_function(text.functions[name][0])}" for name in sorted(names)]
    return _digest([rest, *lines])


def digest_of_the_rest() -> str:
    """The digest of everything but the functions of the texts."""
    return _digest([sys.version, digest_without_functions(folders(), files_of_texts())])


def files_of_texts() -> set[Path]:
    """The files that have the texts of the specifications, with the contracts."""
    modules = [module for one in (BLOCK_MANAGERS, STORES) for module in (*one.texts, *one.contract_texts())]
    return {Path(str(inspect.getsourcefile(module))).resolve() for module in modules}


def digest_without_functions(folders: Iterable[Path], texts: set[Path]) -> str:
    """The digest of all files in these folders; of a text without the bodies of its functions."""
    found, parsed = list[str](), dict[str, ast.Module]()
    for name, file in files_of(folders):
        if file.resolve() in texts:
            parsed[name] = ast.parse(file.read_bytes())
        else:
            found.append(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}")
    may_run = {used for module in parsed.values() for used in _used_outside(module)}
    found += [f"{name} {_without_bodies(module, may_run)}" for name, module in parsed.items()]
    return _digest(sorted(found))


def _without_bodies(module: ast.Module, may_run: set[str]) -> str:
    """The syntax tree of a text, without its docstring and the bodies of functions that are not run when it is read."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name not in may_run:
            node.body = []
    return "\n".join(ast.dump(node) for node in module.body if not _is_docstring(node))


def _used_outside(module: ast.Module) -> Iterator[str]:
    """The names that code outside of functions uses, so that a function of this name may be run."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            for part in (*node.decorator_list, node.args, node.returns):
                yield from _names(part)
        else:
            yield from _names(node)


def _names(node: ast.AST | None, counts: bool = True) -> Iterator[str]:
    """counts: whether a name that stands here alone counts. It does not where only the head of a function is read."""
    if node is None:
        return
    if isinstance(node, ast.Name):
        if counts:
            yield node.id
        return
    inner = counts
    if isinstance(node, ast.Call):
        yield from _names(node.func)
        inner = not (isinstance(node.func, ast.Name) and node.func.id in READ_THE_HEAD)
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Call) and child is node.func):
            yield from _names(child, inner)


@functools.lru_cache(maxsize=4096)
def _digest_of_function(function: ast.FunctionDef) -> str:
    lines = [getattr(node, "lineno", function.lineno) - function.lineno for node in ast.walk(function)]
    return _digest([ast.dump(function), str(lines)])


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
