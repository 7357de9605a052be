"""Where a subject raised: the function and its file, which are the same in the next release; nothing that is chance."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.check.protocol.adapter_fault import Remarked, where_raised
from kvproof.check.protocol.fault_attribution import EngineFailure

FILE = "test_where_raised.py"


class Manager:
    """What raises."""

    def take(self, num_blocks: int) -> list[int]:
        return [self.one(block) for block in range(num_blocks)]

    def one(self, block: int) -> int:
        raise KeyError(block)

    def listed(self) -> list[int]:
        return [int("x" * num) for num in range(1, 2)]

    def decoded(self) -> Any:
        return json.loads("{")

    def endless(self) -> None:
        self.deeper()

    def deeper(self) -> None:
        self.deeper()

    def failed(self) -> None:
        raise EngineFailure("the KV is that of other tokens")


def raised_by(call: Callable[[], object]) -> BaseException:
    """The exception, without the frames of this function and of the test."""
    try:
        call()
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_name in ("raised_by", "<lambda>"):
            trace = trace.tb_next
        return error.with_traceback(trace)
    raise AssertionError("it raises")


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: Manager().take(2), f"Manager.one of {FILE}"),
        (lambda: Manager().listed(), f"Manager.listed of {FILE}"),  # not of a comprehension, which later Pythons lack
        (lambda: Manager().decoded(), f"Manager.decoded of {FILE}"),  # not of the standard library
        (lambda: Manager().endless(), f"Manager.endless of {FILE}"),  # where the stack ends is chance
        (lambda: Manager().failed(), ""),  # the words of an adapter of kvproof say more
    ],
)
def test_it_is_the_innermost_function_of_the_subject(call: Callable[[], object], where: str) -> None:
    assert where_raised(raised_by(call)) == where


def test_it_is_known_of_a_subject_in_another_process() -> None:
    error = Remarked("no room")
    error.raised_in = "take of pool.py"
    assert where_raised(error) == "take of pool.py"


def test_a_file_with_an_unreadable_name_can_be_written_down() -> None:
    code: dict[str, Any] = {}
    exec(compile("def take():\n    raise ValueError\n", "a\ud800.py", "exec"), code)
    where = where_raised(raised_by(lambda: code["take"]()))
    assert where.encode("utf-8").startswith(b"take of a")
