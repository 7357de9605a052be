"""The subjects of one unit: each in a process of its own, which ends with the unit.

A unit runs several releases of one engine, and a worker does many units. Nobody else would end their processes.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

from kvproof.check.isolation.factory import factory_for
from kvproof.check.protocol.manager import ManagerSubject

Factory = Callable[[], ManagerSubject]
Factories = Callable[[str], Factory]  # the factory of the subject of a name. Raises UnknownSubject.


@contextmanager
def factories() -> Iterator[Factories]:
    """Within the block, each subject has one process, however often its factory is asked for."""
    with ExitStack() as ending:

        @cache
        def of(name: str) -> Factory:
            make = factory_for(name)
            if (close := getattr(make, "close", None)) is not None:
                ending.callback(close)
            return make

        yield of
