"""What differs between the sources of two releases of an engine: functions by their names, and defaults of options."""

import ast
from collections.abc import Iterator
from pathlib import Path

from kvproof.check.subjects.loading.functions import functions_in
from kvproof.reports.result import SubjectCode

NO_DEFAULT = "none"


def functions_that_ran(code: SubjectCode, before: Path, after: Path) -> Iterator[str]:
    """The functions that walks of the first release entered and that are others in the second, each with its place.

    Files that are not below the folder of the release are left out. Raises SyntaxError, ValueError, OSError.
    """
    for file in code.files:
        known, now = functions_in(before / file.file), functions_in(after / file.file)
        left_out = {one.function for one in file.partly if not one.is_entered}
        for name, function in known.items():
            is_class = any(other.startswith(f"{name}.") for other in known)
            if is_class or name in left_out or (name in now and now[name].digest == function.digest):
                continue
            yield f"{name} ({file.file}:{now[name].line})" if name in now else f"{name} ({file.file}), which is gone"


def changed_defaults(patterns: list[str], before: Path, after: Path) -> Iterator[str]:
    """The options whose default differs, that are new or gone, by class and field. Raises SyntaxError, OSError.

    patterns: of the files in whose classes the options stand.
    """
    old, new = defaults_in(patterns, before), defaults_in(patterns, after)
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            yield f"{name} is gone (it was {old[name]})"
        elif name not in old:
            yield f"{name} is new: {new[name]}"
        elif old[name] != new[name]:
            yield f"{name}: {old[name]} before, {new[name]} now"


def defaults_in(patterns: list[str], folder: Path) -> dict[str, str]:
    """The annotated fields of the classes in these files of a release, as Class.field, with their defaults as text."""
    found = {}
    for file in sorted(file for pattern in patterns for file in folder.glob(pattern)):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        for kind in (one for one in body if isinstance(one, ast.ClassDef)):
            for one in kind.body:
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    text = NO_DEFAULT if one.value is None else _default(one.value)
                    found[f"{kind.name}.{one.target.id}"] = text
    return found


def _default(node: ast.expr) -> str:
    """The default that a field states, also within a call of `Field` or `field`."""
    if isinstance(node, ast.Call):
        by_name = {one.arg: one.value for one in node.keywords}
        for name in ("default", "default_factory"):
            if name in by_name:
                return ast.unparse(by_name[name])
    return ast.unparse(node)
