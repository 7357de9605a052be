"""What the author of an adapter writes, by level: its base, its calls, and where the types in them come from.

All of it is read from the classes of the protocol, so that what `kvproof init` writes is what a judge asks for.
"""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kvproof.check.protocol.adapter_check import MANAGER_CALLS, RequiredCalls, calls_of
from kvproof.check.protocol.block_events import EventSubject
from kvproof.check.protocol.capabilities import EncoderCan, ManagerCan, PairCan, PoolCan, SchedulerCan, StoreCan
from kvproof.check.protocol.encoder import ENCODER_CALLS, EncoderSubject
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.protocol.manager_adapter import MODULES, ManagerAdapter
from kvproof.check.protocol.pair import PAIR_CALLS, MortalPairSubject, PairAdapter, PairSubject
from kvproof.check.protocol.pool import POOL_CALLS, PoolSubject, ReportingPool
from kvproof.check.protocol.reference import AdapterCall, adapter_calls
from kvproof.check.protocol.scheduler import SCHEDULER_CALLS, ResettingSubject, SchedulerSubject
from kvproof.check.protocol.scheduler_adapter import ALWAYS, SchedulerAdapter
from kvproof.check.protocol.store import STORE_CALLS, StoreAdapter, StoreSubject

NAME = re.compile(r"\b[A-Z]\w+")


@dataclass(frozen=True)
class Skeleton:
    """A level as the author of an adapter meets it.

    noun: what is judged. can: the class of its capabilities. base: of its adapters; None if there is none. always: the
    calls that each adapter defines. declared: the calls that a capability needs in addition. sources: the classes in
    which the calls are described, the first that has one counts.
    """

    level: str
    noun: str
    can: type
    base: type | None
    always: tuple[str, ...]
    declared: tuple[tuple[str, tuple[str, ...]], ...]
    sources: tuple[type, ...]

    def calls(self, capabilities: list[str]) -> list[AdapterCall]:
        """The calls of an adapter that declares these capabilities, in their order."""
        enabled = {*capabilities, *_true_by_default(self.can)}
        found = [] if self.base is not ManagerAdapter else adapter_calls()
        found = [call for call in found if not call.capabilities or enabled & {*call.capabilities}]
        more = [name for capability, names in self.declared if capability in enabled for name in names]
        written = {name for name in more if _is_written(getattr(self.base, name, None))}
        named = dict.fromkeys([*self.always, *more])
        known = {*written, *(call.name for call in found)}
        return [*found, *(self._call(name) for name in named if name not in known)]

    def _call(self, name: str) -> AdapterCall:
        source = next(one for one in self.sources if hasattr(one, name))
        signature = MODULES.sub("", str(inspect.signature(getattr(source, name))))
        return AdapterCall(name, name + signature, (), " ".join((inspect.getdoc(getattr(source, name)) or "").split()))

    def imports(self, signatures: Iterable[str]) -> dict[str, list[str]]:
        """The names that the signatures need, by the module that has them."""
        found: dict[str, set[str]] = {}
        for name in {name for one in signatures for name in NAME.findall(one)}:
            for module in dict.fromkeys(one.__module__ for one in self.sources):
                if (value := getattr(sys.modules[module], name, None)) is not None:
                    home = getattr(value, "__module__", module)
                    found.setdefault(home if isinstance(value, type) else module, set()).add(name)
                    break
        return {module: sorted(names) for module, names in sorted(found.items())}


def _true_by_default(can: type) -> Iterator[str]:
    return (name for name, value in vars(can()).items() if value is True)


def _is_written(call: Any) -> bool:
    """Whether a method of a base does something, so that an adapter need not define it."""
    return callable(call) and "raise NotImplementedError" not in inspect.getsource(call)


def _by(required: RequiredCalls) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((capability, calls) for capability, _, calls in required.declared)


def _of(level: str, noun: str, can: type, base: type | None, required: RequiredCalls, *sources: type) -> Skeleton:
    """A level whose adapters define the calls of its subjects themselves."""
    always = tuple(name for name in required.always if base is None or not hasattr(base, name))
    return Skeleton(level, noun, can, base, always, _by(required), sources)


def _kinds(protocol: type) -> Iterator[type]:
    """A protocol and those that are derived from it."""
    yield protocol
    derived: list[type] = protocol.__subclasses__()
    for one in derived:
        yield from _kinds(one)


# Calls of schedulers that the check of an adapter does not ask for: the base does, and older adapters have no resets.
OF_SCHEDULERS = ("aborts", ("cancel",)), ("fork", ("fork",)), ("reset", calls_of(ResettingSubject))
SKELETONS = {
    one.level: one
    for one in (
        Skeleton(
            "manager",
            "block manager",
            ManagerCan,
            ManagerAdapter,
            (),
            _by(MANAGER_CALLS),
            (ManagerAdapter, *_kinds(ManagerSubject), EventSubject),
        ),
        Skeleton(
            "scheduler",
            "scheduler",
            SchedulerCan,
            SchedulerAdapter,
            ALWAYS,
            (*OF_SCHEDULERS, *_by(SCHEDULER_CALLS)),
            (SchedulerAdapter, *_kinds(SchedulerSubject), EventSubject),
        ),
        _of("pool", "block pool", PoolCan, None, POOL_CALLS, PoolSubject, ReportingPool),
        _of("store", "store", StoreCan, StoreAdapter, STORE_CALLS, StoreSubject),
        _of("encoder", "cache of encoder outputs", EncoderCan, None, ENCODER_CALLS, EncoderSubject),
        _of("pair", "pair of engines", PairCan, PairAdapter, PAIR_CALLS, PairSubject, MortalPairSubject),
    )
}
