"""Planting: one line of a method of the scheduler is another one for a while."""

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from types import CodeType
from typing import Any

import pytest

Plant = Callable[[str, str, str, str], AbstractContextManager[None]]


@contextmanager
def planted(module_name: str, name: str, line: str, replacement: str) -> Iterator[None]:
    """Within the block, `line` of the function reads `replacement`. The line must be there exactly once."""
    module = importlib.import_module(module_name)
    function: Any = attrgetter(name)(module)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(line) == 1, f"{name} has {line!r} {source.count(line)} times, not once"
    future = "from __future__ import annotations\n"
    compiled = compile(future + source.replace(line, replacement), inspect.getfile(function), "exec")
    before = function.__code__
    function.__code__ = next(code for code in compiled.co_consts if isinstance(code, CodeType))
    try:
        yield
    finally:
        function.__code__ = before


@pytest.fixture
def plant() -> Plant:
    return planted
