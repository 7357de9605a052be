"""Mutants: a function as it is in a copy of its module, or a function of the specification, with one text exchanged."""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import text_with
from kvproof.models.arithmetic.sources import FUNCTIONS, Sources

Mutate = Callable[[str, str, str], Sources]


@pytest.fixture
def mutate(tmp_path: Path) -> Iterator[Mutate]:
    """Sources in which a function, by its qualified name, or `spec: name` has one text in place of another."""
    made: list[str] = []

    def mutated(name: str, old: str, new: str) -> Sources:
        if name.startswith("spec: "):
            return _with_spec_function(name.removeprefix("spec: "), old, new)
        function = FUNCTIONS[name]
        module = inspect.getmodule(function)
        assert module is not None
        whole = Edit(function.__qualname__, old, new).changed(inspect.getsource(module))
        package, _, stem = module.__name__.rpartition(".")
        copy = f"{package}.mutant_{len(made)}_of_{stem}"
        path = tmp_path / f"{copy}.py"
        path.write_text(whole, encoding="utf-8")
        made.append(copy)
        return Sources(functions={**FUNCTIONS, name: _imported(copy, path, name)})

    yield mutated
    for copy in made:
        sys.modules.pop(copy, None)


def _with_spec_function(name: str, old: str, new: str) -> Sources:
    return Sources(text=text_with(Sources().text, Edit(name, old, new)))


def _imported(module: str, path: Path, name: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    loaded: Any = importlib.util.module_from_spec(spec)
    sys.modules[module] = loaded
    spec.loader.exec_module(loaded)
    for one in name.split("."):
        loaded = getattr(loaded, one)
    found: Callable[..., Any] = loaded
    return found
