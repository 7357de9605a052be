"""Digests of parts of the text of a specification, and of everything else that obligations are made of.

The digest of a function has its syntax tree and the lines in it, counted from its first one. Everything else is the
files of the specification, of kvproof's own managers and of the prover, and Python's version. Of the texts it has what
stands outside of functions: what decorators and annotations say, the fields, the constants and the order of all
functions. If that code is so plain that it can depend on no body of a function (`plain_texts`), all bodies are left
out; otherwise the texts are in the digest as whole files.
"""

import ast
import functools
import hashlib
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path

from kvproof.check.hosts.sources import files_of
from kvproof.check.proving.kept import folders
from kvproof.check.proving.plain_texts import are_plain
from kvproof.models.translation.text import Text
from kvproof.spec.store.machine import STORES
from kvproof.spec.systems import BLOCK_MANAGERS


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
    """The digest of all files in these folders; of the texts without the bodies of functions, if they are plain."""
    found, of_texts = list[tuple[str, bytes]](), dict[str, bytes]()
    for name, file in files_of(folders):
        if file.resolve() in texts:
            of_texts[name] = file.read_bytes()
        else:
            found.append((name, file.read_bytes()))
    parsed = {name: ast.parse(source) for name, source in of_texts.items()}
    if are_plain(parsed):
        found += [(name, _without_bodies(module).encode()) for name, module in parsed.items()]
    else:
        found += of_texts.items()
    return _digest(sorted(f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in found))


def _without_bodies(module: ast.Module) -> str:
    """The syntax tree of a text, without its docstring and the bodies of functions."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            node.body = []
    return "\n".join(ast.dump(node) for node in module.body if not _is_docstring(node))


@functools.lru_cache(maxsize=4096)
def _digest_of_function(function: ast.FunctionDef) -> str:
    lines = [getattr(node, "lineno", function.lineno) - function.lineno for node in ast.walk(function)]
    return _digest([ast.dump(function), str(lines)])


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
