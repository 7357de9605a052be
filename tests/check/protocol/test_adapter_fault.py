"""What an adapter does wrong is its own fault, with file and line; what the manager does wrong is a finding."""

import ctypes
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any, cast

import pytest

from kvproof.check import Capabilities, Config, ManagerAdapter, run_conformance
from kvproof.check.counterexample.steps import describe_steps
from kvproof.check.oracle.level import MANAGER
from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.adapter_fault import located, require_fault_of_manager
from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Admission, ManagerSubject
from kvproof.check.subjects.builtin.manager import BuiltIn

Factory = Callable[[], ManagerSubject]
Altered = Callable[..., Factory]
HERE = "tests/check/protocol/test_adapter_fault.py"


def raises(self: Any, *arguments: Any) -> None:
    raise KeyError(7)


def make(self: Any, config: Config) -> None:
    raise KeyError(7)


def helper() -> None:
    raise KeyError(7)


def calls_a_helper(self: Any, seq: int) -> None:
    helper()


def calls_the_library(self: Any, seq: int) -> None:
    [].pop()


def line_of(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("yes", {"can_allocate": lambda self, tokens: "yes"}, "can_allocate must return bool or Admission", "can_allocate"),
    ("number", {"can_append": lambda self, group: 1}, "can_append must return bool or Admission", "can_append"),
    ("hit", {"allocate": lambda self, seq, tokens: "x"}, "allocate must return int; it returned 'x'", "allocate"),
    (
        "true hit",
        {"allocate": lambda self, seq, tokens: True},
        "allocate must return int; it returned True",
        "allocate",
    ),
    ("copies", {"append": lambda self, seq, num_tokens: 3}, "append must return list or tuple", "append"),
    ("no tables", {"tables": lambda self: None}, "tables must return a dict from sequences", "tables"),
    ("a list", {"tables": lambda self: [[0]]}, "tables must return a dict from sequences", "tables"),
    ("short", {"refcounts": lambda self: [0]}, r"must have \d+ refcounts, .* it has 1", "refcounts"),
    ("endless", {"free_ids": lambda self: range(30_000_000)}, "free_ids has a list of 30,000,000 numbers", "free_ids"),
    ("free", {"num_free": lambda self: "8"}, "free must be two ints", "num_free"),
    (
        "huge",
        {"num_free": lambda self: 10**30},
        "free must be two ints of at most 64 bits, .* it is .10000",
        "num_free",
    ),
    (
        "names",
        {"tables": lambda self: {str(seq): table for seq, table in self.manager.tables.items()}},
        "tables must be a dict whose keys are sequences, which are ints; a key is '1'",
        "tables",
    ),
    ("ids", {"free_ids": lambda self: 3}, "free_ids must return a list of ints or None", "free_ids"),
    (
        "ids of one device",
        {"free_ids": lambda self: list(range(self.num_free())), "num_free_host": lambda self: 4},
        "free_ids must have the ids of the 4 free host blocks too, which begin at",
        "free_ids",
    ),
    ("nothing made", {"make": lambda self, config: None}, "make must return the new manager; it returned None", "make"),
    ("exception", {"tables": raises}, r"observe\(\) raised KeyError: 7", "tables"),
    ("make", {"make": make}, r"raised KeyError: 7 (?s:.*)`make` must raise Unsupported", "make"),
    ("signature", {"can_append": lambda self: True}, r"can_append\(\d+\): .*takes 1 positional argument", "can_append"),
    ("inner signature", {"release": lambda self: None}, "raised TypeError: .*takes 1 positional argument", "release"),
]


@pytest.mark.parametrize(("calls", "message", "call"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_answer_or_exception_of_the_adapter_names_its_file_and_line(
    altered: Altered, tmp_path: Path, calls: dict[str, Any], message: str, call: str
) -> None:
    with pytest.raises(AdapterError, match=message) as wrong:
        run_conformance(altered(**calls), operations=500, crashes=tmp_path)
    first, *_, last = str(wrong.value).splitlines()
    place = first.rpartition("(")[2].rstrip(")")
    assert place.startswith((HERE, "examples/forty_lines.py"))
    assert last.startswith(f"The manager was not judged. Correct the adapter at {place}.")


class Native(ManagerAdapter):
    """An adapter of code without Python frames."""

    def release(self, seq: int) -> None:
        ctypes.CDLL("/no/such/library")

    def share(self, parent: int, child: int) -> None:
        self.manager.pop(parent)

    def open(self, config: Config) -> None:
        self.manager.fail(self)


def fault(adapter: ManagerAdapter, call: str, *arguments: Any) -> str | None:
    """What is said against the adapter when the call fails; None if the manager is blamed."""
    try:
        getattr(adapter, call)(*arguments)
    except Exception as error:
        try:
            require_fault_of_manager(error, call, adapter)
        except AdapterError as wrong:
            return str(wrong).splitlines()[0]
    return None


def test_pythons_own_library_and_functions_of_the_adapters_file_belong_to_the_adapter() -> None:
    adapter = Native()
    adapter.manager = {}
    assert f"({HERE}:" in (fault(adapter, "release", 1) or "")
    assert f"share raised KeyError: 1 ({HERE}:" in (fault(adapter, "share", 1, 2) or "")
    for own in (calls_a_helper, calls_the_library):
        adapter.release = MethodType(own, adapter)  # type: ignore[method-assign]
        assert f"({HERE}:{line_of(own) + 1})" in (fault(adapter, "release", 1) or "")


@pytest.mark.parametrize("error", [MemoryError(), RecursionError(), EngineFailure("it is wrong")])
def test_a_lack_of_memory_and_a_failure_that_an_adapter_reports_say_nothing_against_it(error: Exception) -> None:
    def fail(self: Any, seq: int) -> None:
        raise error

    adapter = Native()
    adapter.release = MethodType(fail, adapter)  # type: ignore[method-assign]
    assert fault(adapter, "release", 1) is None


def loops(number: int) -> None:
    loops(number)


class Looping:
    """A manager whose calls have no end."""

    def free(self, seq: int) -> None:
        self.free(seq)

    def call(self, back: Callable[[int], None]) -> None:
        back(1)

    def count(self, number: int) -> None:
        loops(number)

    def touch(self, times: int) -> None:
        if times:
            self.touch(times - 1)


class Recursive(ManagerAdapter):
    """An adapter whose calls have no end, in itself or in its manager."""

    def release(self, seq: int) -> None:
        self.manager.touch(3)
        self.release(seq)

    def share(self, parent: int, child: int) -> None:
        loops(parent)

    def num_free(self) -> int:
        return self.num_free_host()

    def num_free_host(self) -> int:
        return self.num_free()

    def grow(self, seq: int, token: int) -> None:
        self.manager.free(seq)

    def computed(self, seqs: Any, stops: Any) -> None:
        self.manager.count(1)

    def forget(self, group: int) -> None:
        self.manager.call(self.forget)


@pytest.mark.parametrize(
    ("call", "arguments", "is_of_adapter"),
    [
        ("release", (1,), True),
        ("share", (1, 2), True),
        ("num_free", (), True),
        ("grow", (1, 2), False),
        ("computed", ([], []), False),
        ("forget", (1,), False),
    ],
)
def test_an_endless_recursion_belongs_to_the_adapter_only_if_all_that_repeats_does(
    call: str, arguments: tuple[Any, ...], is_of_adapter: bool
) -> None:
    adapter = Recursive()
    adapter.manager = Looping()
    assert (fault(adapter, call, *arguments) is not None) is is_of_adapter


def test_a_call_of_native_code_of_the_manager_blames_the_manager() -> None:
    import msgspec  # its types are an extension module's, as a manager in C++ would be

    class Decodes(ManagerAdapter):
        def release(self, seq: int) -> None:
            self.manager.decode(b"?")

    adapter = Decodes()
    adapter.manager = msgspec.json.Decoder()
    assert fault(adapter, "release", 1) is None


class Failing:
    """A manager with a fault."""

    def free(self, seq: int) -> None:
        raise KeyError(seq)


class Wrapping(ManagerAdapter):
    """An adapter that raises exceptions of its own, and uses another adapter."""

    def release(self, seq: int) -> None:
        try:
            self.manager.free(seq)
        except KeyError as error:
            raise RuntimeError("wrapped") from error

    def share(self, parent: int, child: int) -> None:
        inner = Native()
        inner.manager = {}
        inner.share(parent, child)


EMPTY: dict[int, int] = {}


def ids_of(blocks: dict[int, int]) -> Iterator[int]:
    yield blocks[7]


def sizes_of(blocks: dict[int, int]) -> Iterator[int]:
    yield blocks[7]


class OneFile:
    """A manager in the adapter's file, whose parts without `self` fail."""

    @staticmethod
    def pick(blocks: dict[int, int]) -> int:
        return blocks[7]

    @classmethod
    def size(cls) -> int:
        return EMPTY[7]

    def ids(self) -> Iterator[int]:
        return ids_of(EMPTY)

    def sizes(self) -> Iterator[int]:
        return (EMPTY[one] for one in (7,))


class InOneFile(ManagerAdapter):
    """An adapter beside its manager."""

    @staticmethod
    def own_pick(blocks: dict[int, int]) -> int:
        return blocks[7]

    @classmethod
    def own_size(cls) -> int:
        return EMPTY[7]

    def own_sizes(self) -> Iterator[int]:
        yield EMPTY[7]

    def release(self, seq: int) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: OneFile.pick(EMPTY),
            OneFile.size,
            lambda: list(OneFile().ids()),
            lambda: list(OneFile().sizes()),
            lambda: self.own_pick(EMPTY),
            self.own_size,
            lambda: list(self.own_sizes()),
            lambda: list(sizes_of(EMPTY)),
        ]
        calls[seq]()


@pytest.mark.parametrize(("number", "is_of_adapter"), [*enumerate([False] * 4 + [True] * 4)])
def test_what_has_no_self_belongs_to_the_class_in_which_it_is_written(number: int, is_of_adapter: bool) -> None:
    assert (fault(InOneFile(), "release", number) is not None) is is_of_adapter


class Handling(ManagerAdapter):
    """An adapter that raises, or fails, while it handles an exception of the manager."""

    def release(self, seq: int) -> None:
        try:
            self.manager.free(seq)
        except KeyError:
            raise RuntimeError("no such sequence")  # noqa: B904

    def share(self, parent: int, child: int) -> None:
        try:
            self.manager.free(parent)
        except KeyError:
            raise RuntimeError("no such sequence") from None

    def append(self, seq: int, num_tokens: int) -> list[tuple[int, int]]:
        try:
            self.manager.free(seq)
        except KeyError:
            raise RuntimeError(EMPTY[seq])  # noqa: B904
        return []

    def allocate(self, seq: int, tokens: Any) -> int:
        try:
            return int(self.manager.free(seq) or 0)
        except KeyError:
            return EMPTY[seq]


@pytest.mark.parametrize(
    ("call", "is_of_adapter"), [("release", False), ("share", False), ("append", True), ("allocate", True)]
)
def test_an_exception_that_an_adapter_raises_in_a_handler_belongs_to_whom_the_handled_one_belongs(
    call: str, is_of_adapter: bool
) -> None:
    adapter = Handling()
    adapter.manager = Failing()
    arguments = (1,) if call == "release" else (1, 2)
    assert (fault(adapter, call, *arguments) is not None) is is_of_adapter
    adapter.manager = SimpleNamespace(free={}.pop)
    assert fault(adapter, call, *arguments) is not None


class OfNativeCode(threading.local, Wrapping):
    """An adapter with a base class that has no source."""


@pytest.mark.parametrize("kind", [Wrapping, OfNativeCode])
def test_an_exception_that_an_adapter_raises_from_another_belongs_to_whom_the_other_belongs(
    kind: type[ManagerAdapter],
) -> None:
    adapter = kind()
    adapter.manager = Failing()
    assert fault(adapter, "release", 1) is None
    adapter.manager = SimpleNamespace(free={}.pop)
    assert "release raised RuntimeError: wrapped" in (fault(adapter, "release", 1) or "")
    assert "share raised KeyError: 1" in (fault(adapter, "share", 1, 2) or "")


def test_an_exception_of_another_object_in_the_adapters_file_is_a_finding_of_the_manager(
    altered: Altered, example: Factory
) -> None:
    def make(self: Any, config: Config) -> Any:
        manager = cast(ManagerAdapter, example()).make(config)
        manager.free = MethodType(raises, manager)
        return manager

    operations = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 1), ("free", 1)]
    finding = finding_of(altered(make=make)(), Config(), operations)
    assert finding is not None
    assert (finding.property, finding.text) == ("total-calls", "free(1) raised KeyError: 7")
    assert [(place.function, place.file) for place in finding.frames] == [
        ("Adapter.release", "examples/forty_lines.py"),
        ("raises", HERE),
    ]


def test_a_block_that_there_is_not_is_said_to_be_out_of_range(altered: Altered) -> None:
    operations = [("new", 1, (1,), (0,)), ("admit", 1, 1)]
    tables = altered(tables=lambda self: {seq: [9 for _ in table] for seq, table in self.manager.tables.items()})
    finding = finding_of(tables(), Config(num_gpu_blocks=2), operations)
    assert finding is not None
    assert finding.text == "admit(1): the table of sequence 1 is [9], of 2 blocks; block 9 is out of range"
    assert describe_steps(tables, Config(num_gpu_blocks=2), operations)[1].endswith(
        "sequence 1: block 9 (out of range)"
    )
    free_ids = altered(free_ids=lambda self: [0, 9])
    finding = finding_of(free_ids(), Config(num_gpu_blocks=2), [])
    assert finding is not None
    assert finding.text == "open: the free list names block 9, of 2; it is out of range"


def test_an_answer_is_located_where_the_call_of_the_adapter_is_defined(example: Factory) -> None:
    error = located(AdapterError("can_admit must return Admission", "can_admit"), example())
    assert "examples/forty_lines.py:" in str(error)
    assert "Adapter.can_allocate of" in str(error)


def test_every_call_that_is_asked_takes_bool_or_admission(altered: Altered, example: Factory, tmp_path: Path) -> None:
    adapter = cast(ManagerAdapter, example())
    asked = type(adapter).can_append

    def can_append(self: Any, group: int) -> Admission:
        return Admission.OK if asked(self, group) else Admission.LATER

    run_conformance(altered(can_append=can_append), operations=500, crashes=tmp_path)
    judge = MANAGER.open(altered(can_append=can_append)(), Config(num_gpu_blocks=1, block_size=1))
    for operation in [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 1), ("sample", 1, (5,)), ("append", 1)]:
        assert judge.apply(operation)
    assert judge.answer == "cannot append"


def test_missing_calls_are_named_with_the_capabilities_that_need_them() -> None:
    class Empty(ManagerAdapter):
        capabilities = Capabilities(caching=True, swap=True)

    with pytest.raises(
        AdapterError, match=r"(?s)def hits\(.*\(capability caching\).*def computed\(.*\(capability caching\)"
    ):
        Empty().open(Config())


def test_the_address_of_an_object_is_no_part_of_a_message() -> None:
    with pytest.raises(AdapterError, match=r"it returned <tuple_iterator object>$"):
        check_answer("append", iter(()), list)


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        ({"eviction": "nonsense"}, "eviction is wrong: there is no 'nonsense'; choose from block-lru, sequence-lru, "),
        (
            {"eviction": "block_lru"},
            "eviction is wrong: there is no 'block_lru' (did you mean block-lru?); choose from ",
        ),
        ({"policies": ("fcfs", "lifo")}, "policies is wrong: there is no 'lifo'; choose from fcfs, priority"),
        ({"refusal_slack": -1}, "refusal_slack is wrong: -1 is less than 0"),
        ({"lost_hits": "one"}, "lost_hits is wrong: Expected `int | null`, got `str`"),
    ],
)
def test_a_capability_that_says_nothing_is_refused(declared: dict[str, Any], what: str) -> None:
    subject = BuiltIn()
    subject.capabilities = replace(BuiltIn.capabilities, **declared)
    with pytest.raises(AdapterError, match=rf"^BuiltIn\.capabilities\.{re.escape(what)}"):
        MANAGER.open(subject, Config())
