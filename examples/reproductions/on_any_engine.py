"""What the scripts for all engines share: how a script ends, and objects that stand for a part of an engine.

A script needs no GPU and no model. It ends with exit code 1 if the fault is there, with 0 if it is not, and with 2 if
it cannot run: by itself, Python would end with 1 then, too. `python SCRIPT.py` finds this file and the others that
begin with `on_`, since they lie in the folder of the script. This one comes before the engine, which may be missing.
"""

import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace, TracebackType
from typing import Any

StandIn = SimpleNamespace  # it has what it is made of, and fails if it is asked for anything else


def same(value: Any, names: str) -> dict[str, Any]:
    """These names, all with one value; what is off is None, False or 0."""
    return dict.fromkeys(names.split(), value)


def nothing(*arguments: Any, **options: Any) -> None:
    """Do nothing."""


def with_options(call: Any, **options: Any) -> Any:
    """Call a class or a function with those of the options that it takes in this release."""
    taken = inspect.signature(call).parameters
    return call(**{name: value for name, value in options.items() if name in taken})


def fault_if(found: object, text: str) -> None:
    """End the script if the fault was found."""
    if found:
        sys.exit(text)


@contextmanager
def fault_if_raised(kind: type[Exception], text: str) -> Iterator[None]:
    """End the script if what is done within raises an exception of this kind."""
    try:
        yield
    except kind as error:
        sys.exit(": ".join(part for part in (text, kind.__name__, str(error)) if part))


def cannot_run(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an exception that nobody expects, and end with exit code 2."""
    traceback.print_exception(kind, error, trace)
    sys.exit(2)


sys.excepthook = cannot_run
