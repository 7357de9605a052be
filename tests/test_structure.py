"""How large a class and a function may be, and how deep classes inherit: counted in the product, not in its tests.

A method counts once, whether the class has it or inherits it from a class of ours: every function in the body of a
class, `__init__` and properties included, but not what a dataclass generates. The depth of a class is the number of
classes of ours above it, one below the other. A function is as long as its lines, from `def` to the last one.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.syntax import parsed, statements

TREE = Path(__file__).resolve().parents[1]
ROOTS = ("spec", "impl", "models", "check", "reports", "audit")
METHODS_MAX, DEPTH_MAX, LINES_MAX = 40, 3, 60

# As large as what they stand for: adapters and their base, a subject behind a pipe, the interfaces of vLLM's managers.
INTERFACES = (
    "check/kvproof/check/subjects/",
    "check/kvproof/check/protocol/manager_adapter.py",
    "check/kvproof/check/isolation/pipe/subject.py",
    "impl/",
)

Class = tuple[str, str]  # the module, and the name


@cache
def files() -> dict[str, ast.Module]:
    """The modules of the product by their dotted names."""
    paths = [path for root in ROOTS for path in sorted((TREE / root).rglob("*.py"))]
    return {_module(path): parsed(path) for path in paths}


def _module(path: Path) -> str:
    parts = path.relative_to(TREE).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _file_of(module: str) -> str:
    folder = TREE / module.split(".")[1] / Path(*module.split("."))
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return path.relative_to(TREE).as_posix()


@cache
def classes() -> dict[Class, ast.ClassDef]:
    return {
        (module, node.name): node
        for module, tree in files().items()
        for node in statements(tree)
        if isinstance(node, ast.ClassDef)
    }


@cache
def _imported(module: str) -> dict[str, Class]:
    """The names that a module imports, each with where it comes from."""
    found: dict[str, Class] = {}
    is_package = _file_of(module).endswith("__init__.py")
    parts = module.split(".") if is_package else module.split(".")[:-1]
    for node in statements(files()[module]):
        if isinstance(node, ast.ImportFrom):
            package = parts[: len(parts) - node.level + 1] if node.level else []
            source = ".".join([*package, *([node.module] if node.module else [])])
            found |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
    return found


def bases_of(one: Class) -> Iterator[Class]:
    """The classes of ours that a class is derived from, as its `class` line names them."""
    module, _ = one
    for base in classes()[one].bases:
        expression = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(expression, ast.Name):
            found: Class | None = (module, expression.id)
        elif isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            package, name = _imported(module).get(expression.value.id, ("", ""))
            found = (f"{package}.{name}", expression.attr)
        else:
            found = None
        while found is not None and found not in classes():
            found = _imported(found[0]).get(found[1]) if found[0] in files() else None
        if found is not None:
            yield found


@cache
def depth(one: Class) -> int:
    return max((1 + depth(base) for base in bases_of(one)), default=0)


@cache
def methods(one: Class) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    own = {node.name for node in classes()[one].body if isinstance(node, functions)}
    return own.union(*(methods(base) for base in bases_of(one)))


def functions_over(num_lines_max: int) -> dict[tuple[str, str], int]:
    """The functions with more lines than this: file and name, and how many."""
    return {
        (_file_of(module), node.name): lines
        for module, tree in files().items()
        for node in statements(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > num_lines_max
    }


def test_no_judge_recorder_stage_or_explainer_has_more_methods_than_a_reader_can_hold() -> None:
    counted = {one: methods(one) for one in classes() if not _file_of(one[0]).startswith(INTERFACES)}
    assert {one: len(names) for one, names in counted.items() if len(names) > METHODS_MAX} == {}
    assert max(map(len, counted.values())) > 30, "the count sees what classes inherit"


def test_no_class_is_far_from_the_first_class_that_it_is_derived_from() -> None:
    depths = {one: depth(one) for one in classes()}
    assert {one: number for one, number in depths.items() if number > DEPTH_MAX} == {}
    assert DEPTH_MAX in depths.values(), "the count sees classes that are derived from derived ones"


def test_a_function_fits_a_page() -> None:
    assert functions_over(LINES_MAX) == {}
    assert functions_over(LINES_MAX // 2) != {}, "the count sees functions"


@pytest.mark.parametrize("name", ["ManagerJudge", "SchedulerJudge", "PoolJudge", "StoreJudge", "V0Judge", "V1Judge"])
def test_the_counts_see_the_judges(name: str) -> None:
    (one,) = (one for one in classes() if one[1] == name)
    assert "explain" in methods(one) or "apply" in methods(one)
    assert 1 <= depth(one) <= DEPTH_MAX
