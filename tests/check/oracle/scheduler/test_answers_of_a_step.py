"""A step with something of a wrong type is a fault of the adapter: neither of the scheduler nor of kvproof."""

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.check.isolation.factory import factory_for
from kvproof.check.isolation.remote_search import walk as walk_elsewhere
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.scheduler import ScheduledStep
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler


class Number:
    """As numpy's: no int, but it counts as one."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"Number({self.value})"


def text(chunk: Any) -> Any:
    return chunk._replace(stop=str(chunk.stop))


def number(chunk: Any) -> Any:
    return chunk._replace(start=Number(chunk.start))


def bare(chunk: Any) -> Any:
    return tuple(chunk)


class Shows(BuiltInScheduler):
    """It shows its chunks in another form."""

    form: Callable[[Any], Any] = staticmethod(text)

    def next_step(self) -> tuple[Any, ScheduledStep]:
        output, step = super().next_step()
        return output, step._replace(chunks=[self.form(chunk) for chunk in step.chunks])


class ShowsNumbers(Shows):
    form = staticmethod(number)


class ShowsBareTuples(Shows):
    form = staticmethod(bare)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (ShowsNumbers, r"schedule\(\).chunks must have ints; it has Number\(0\)"),
        (ShowsBareTuples, r"schedule\(\).chunks must be a list of Chunk; one is \(1, 0, \d+, 0\)"),
        (Shows, r"schedule\(\).chunks must have ints; it has '\d+', a str"),
    ],
)
def test_a_wrong_type_is_the_adapters(kind: type[Shows], sentence: str) -> None:
    with pytest.raises(AdapterError, match=sentence):
        walk(SCHEDULERS, kind(), 1, max_operations=1_000, seconds=60)


def test_it_is_so_in_a_process_of_its_own() -> None:
    subject = factory_for(f"{__file__}:ShowsNumbers", True)()
    with pytest.raises(AdapterError, match=r"schedule\(\).chunks must have ints; it has Number\(0\)"):
        walk_elsewhere(SCHEDULERS, subject, 1, max_operations=1_000, seconds=60)
