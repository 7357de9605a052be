"""Stub types for the parts of SGLang around its scheduler: each name of a stub module is a type of its own.

While the release is imported, a stub decorates, is a base class, and has constants. Once everything is imported
(`seal`), a stub that is called or read is an error that says its name, so that nothing is answered by chance.
"""

from abc import ABCMeta
from types import FunctionType
from typing import Any

from kvproof.check.protocol.fault_attribution import StandInError
from kvproof.check.subjects.loading.partial_import import StubModule
from kvproof.check.subjects.loading.stub_modules import Constant

_seals: list[bool] = []  # one entry once everything is imported


def seal() -> None:
    """From now on a stub that is used is an error."""
    _seals[:] = [True]


class Kind(ABCMeta):
    """Metaclass of stub types. A class of the engine that is derived from a stub is an ordinary class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") or not cls.__dict__.get("is_stub"):
            raise AttributeError(name)
        if name.isupper():
            return Constant(name)
        if _seals:
            raise StandInError(f"the engine reads {cls.__module__}.{cls.__name__}.{name}")
        return stub(cls.__module__, f"{cls.__name__}.{name}")

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        if not cls.__dict__.get("is_stub"):
            return super().__call__(*arguments, **options)
        if _seals:
            raise StandInError(f"the engine calls {cls.__module__}.{cls.__name__}")
        is_decorator = len(arguments) == 1 and isinstance(arguments[0], FunctionType | type) and not options
        return arguments[0] if is_decorator else cls


def stub(module: str, name: str) -> Any:
    """A stub type."""
    return Kind(
        name, (), {"__module__": module, "is_stub": True, "__class_getitem__": classmethod(lambda cls, key: cls)}
    )


class Stubs(StubModule):
    """A stub module: each name in it is a stub type, the same one each time."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = stub(self.__name__, name)
        setattr(self, name, made)
        return made
