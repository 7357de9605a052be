"""Classes of `kvproof.impl` from a source in which one text is replaced."""

import inspect
import sys
import types
from typing import Any


def mutant(original: type, old: str, new: str) -> Any:
    """The class from a source in which one text of it is replaced."""
    module = sys.modules[original.__module__]
    source, text = inspect.getsource(module), inspect.getsource(original)
    assert old in text, "the source has changed: choose another fault"
    rewritten = types.ModuleType(module.__name__)
    rewritten.__package__ = module.__package__
    exec(compile(source.replace(text, text.replace(old, new, 1)), "a mutant", "exec"), vars(rewritten))
    return getattr(rewritten, original.__name__)
