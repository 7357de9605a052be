"""Which calls count as outside the contract of the engine: those of which the adapter says it, by a declared name."""

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.check.isolation.fork_server import _done
from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.remote_subject import answered
from kvproof.check.oracle.replay import replay
from kvproof.check.oracle.subject_calls import SubjectCalls
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Assumption, Config, ManagerSubject, OutsideContract
from kvproof.check.protocol.outside_contract import OutsideThere
from kvproof.check.subjects.builtin.manager import BuiltIn

Altered = Callable[..., Callable[[], ManagerSubject]]
Share = Callable[[Any, int, int], Any]

CONFIG = Config(block_size=1, num_gpu_blocks=4)
RUN = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0), ("fork", 1, 2)]
DECLARED = (Assumption("no-forks", "Nothing is forked."),)
COUNTS = "contract no-forks"


def says_so() -> None:
    raise OutsideContract("no-forks", "nothing is forked")


class Manager:
    """A manager below an adapter that knows the exception, too."""

    def fork(self, parent: int, child: int) -> None:
        says_so()

    def refuses(self, parent: int, child: int) -> None:
        raise ValueError("not this one")


def by_the_adapter(self: Any, parent: int, child: int) -> None:
    raise OutsideContract("no-forks", "nothing is forked")


def instead_of_an_exception(self: Any, parent: int, child: int) -> None:
    try:
        Manager().refuses(parent, child)
    except ValueError as error:
        raise OutsideContract("no-forks", "nothing is forked") from error


def by_the_manager(self: Any, parent: int, child: int) -> None:
    Manager().fork(parent, child)


def tables(self: Any) -> None:
    raise OutsideContract("no-forks", "nothing is forked")


def by_a_mistake(self: Any, parent: int, child: int) -> None:
    raise OutsideContract([], 7)  # type: ignore[arg-type]


def declaring(make: Callable[[], ManagerSubject]) -> Callable[[], ManagerSubject]:
    """The same with a declared assumption."""

    def make_it() -> ManagerSubject:
        subject = make()
        subject.assumptions = DECLARED
        return subject

    return make_it


def cause_of(make: Callable[[], ManagerSubject]) -> str:
    found = replay(make, CONFIG, RUN).finding
    assert found is not None
    return found.cause


@pytest.mark.parametrize("share", [by_the_adapter, instead_of_an_exception])
def test_a_call_is_outside_the_contract_if_the_adapter_says_so(altered: Altered, share: Share) -> None:
    assert cause_of(declaring(altered(share=share))) == COUNTS


def test_what_the_manager_raises_is_an_exception_like_any_other(altered: Altered) -> None:
    assert cause_of(declaring(altered(share=by_the_manager))) == "fork OutsideContract"


@pytest.mark.parametrize("share", [by_the_adapter, by_a_mistake])
def test_a_name_that_is_not_declared_is_the_fault_of_the_adapter(altered: Altered, share: Share) -> None:
    with pytest.raises(AdapterError, match=r"which `assumptions` does not declare .it declares: boolean-adm"):
        replay(altered(share=share), CONFIG, RUN)


def test_an_observation_is_never_outside_the_contract(altered: Altered) -> None:
    with pytest.raises(AdapterError, match=r"observe raised OutsideContract, but .* always allowed"):
        replay(declaring(altered(tables=tables)), CONFIG, RUN)


class Both(BuiltIn):
    """A manager with the calls of the protocol: it is its own adapter."""

    assumptions = DECLARED

    def fork(self, parent: int, child: int) -> None:
        raise OutsideContract("no-forks", "nothing is forked")


class ByFunction(Both):
    """The same by a function beside it."""

    def fork(self, parent: int, child: int) -> None:
        says_so()


class Around:
    """Another object that offers the protocol, and hands every call on."""

    def __init__(self) -> None:
        self.inner = Both()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("make", [Both, ByFunction, Around, lambda: Both()])
def test_whatever_offers_the_protocol_is_an_adapter(make: Callable[[], Any]) -> None:
    assert cause_of(make) == COUNTS


@pytest.mark.parametrize(
    ("share", "answer"), [(by_the_adapter, "contract"), (by_the_manager, "raised"), (by_a_mistake, "adapter")]
)
def test_the_process_of_the_subject_sends_what_it_is(altered: Altered, share: Share, answer: str) -> None:
    subject = declaring(altered(share=share))()
    replay(lambda: subject, CONFIG, RUN[:3])
    assert _done(subject, "call", "fork", [1, 2], Journal())[0] == answer


class Elsewhere:
    """A subject in another process, which sends that a call was outside the contract of this name."""

    capabilities, assumptions = BuiltIn.capabilities, DECLARED

    def fork(self, assumption: str) -> None:
        answered(["contract", assumption, "x"], "elsewhere")


def test_another_process_is_believed_only_for_a_name_that_was_declared_at_first() -> None:
    calls = SubjectCalls(Elsewhere())  # type: ignore[arg-type]
    with pytest.raises(Finding) as found:
        calls.call("total-calls", "fork", "no-forks")
    assert isinstance(found.value.__cause__, OutsideThere)
    assert found.value.contract == "no-forks"
    with pytest.raises(AdapterError, match="does not declare"):
        calls.call("total-calls", "fork", "declared-later")


class Bare:
    """A subject that says nothing of assumptions."""

    capabilities = BuiltIn.capabilities

    def fork(self) -> None:
        raise OutsideContract("no-forks", "nothing is forked")


def test_a_subject_without_assumptions_declares_none() -> None:
    with pytest.raises(AdapterError, match=r"does not declare .it declares: none."):
        SubjectCalls(Bare()).call("total-calls", "fork")  # type: ignore[arg-type]
