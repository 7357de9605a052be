"""Check that an adapter keeps the protocol of its level: it has every call, and its answers have the right types.

Types are not checked at each call, for speed. They are checked when a subject is opened, and again before a finding is
believed, so that a wrong type is reported as a fault of the adapter and not as one of the engine.
"""

from dataclasses import dataclass
from typing import Any

from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Assumption, Capabilities, ManagerSubject, Observation


def calls_of(protocol: type) -> tuple[str, ...]:
    """The names of the calls of a protocol."""
    return tuple(name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_"))


@dataclass(frozen=True)
class RequiredCalls:
    """The calls that a subject of one level must have.

    noun: what a message calls such a subject. always: calls that each of them has. declared: capabilities, each with
    the words for it and the calls that a subject which declares it must have in addition. marks: the calls by which
    such a subject differs from subjects of other levels; without: calls that it never has.
    """

    noun: str
    always: tuple[str, ...]
    declared: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    marks: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every call that a subject of this level can have."""
        return (*self.always, *(name for _, _, calls in self.declared for name in calls))

    def mark(self, subject: Any) -> bool:
        """Whether the subject is of this level, by its calls. False if there are no marks."""
        is_marked = bool(self.marks) and all(_has(subject, call) for call in self.marks)
        return is_marked and not any(_has(subject, call) for call in self.without)


MANAGER_CALLS = RequiredCalls("manager subject", calls_of(ManagerSubject))


def check_adapter(subject: Any, required: RequiredCalls, hint: str = "") -> None:
    """Raise AdapterError unless the subject has the required calls, its capabilities and its name.

    hint: what to do if a call is missing.
    """
    name = type(subject).__name__
    if missing := [call for call in required.always if not _has(subject, call)]:
        raise AdapterError(f"{name} is not a {required.noun}: it has no {', '.join(missing)}{hint}")
    if not isinstance(getattr(subject, "capabilities", None), Capabilities):
        raise AdapterError(f"{name}.capabilities must be a Capabilities")
    for capability, words, calls in required.declared:
        missing = [call for call in calls if not _has(subject, call)]
        if getattr(subject.capabilities, capability) and missing:
            raise AdapterError(f"{name} declares that it {words}, and has no {', '.join(missing)}")
    if not isinstance(getattr(subject, "name", None), str):
        raise AdapterError(f"{name}.name must be a string")
    assumptions = getattr(subject, "assumptions", ())
    if not isinstance(assumptions, tuple) or not all(isinstance(one, Assumption) for one in assumptions):
        raise AdapterError(f"{name}.assumptions must be a tuple of Assumption; it is {_short(assumptions)}")


def _has(subject: Any, call: str) -> bool:
    return callable(getattr(subject, call, None))


def check_answer(name: str, answer: Any, *types: type) -> None:
    """Raise AdapterError unless the answer of a call is of one of the types."""
    if not isinstance(answer, types):
        wanted = " or ".join(t.__name__ for t in types)
        raise AdapterError(f"{name} must return {wanted}; it returned {_short(answer)}")


def check_pairs(name: str, pairs: Any) -> None:
    """Raise AdapterError unless these are pairs of block ids."""
    check_answer(name, pairs, list, tuple)
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(type(x) is int for x in pair)):
            raise AdapterError(f"{name} must return pairs of ints; one is {_short(pair)}")


def check_observation(observed: Any, num_groups: int) -> None:
    """Raise AdapterError unless this is an Observation whose every field has the right type.

    num_groups: the number of KV groups, and so of tables of each sequence.
    """
    check_answer("observe", observed, Observation)
    if not isinstance(observed.tables, dict):
        raise AdapterError(f"observe().tables must be a dict; it is {_short(observed.tables)}")
    for seq, tables in observed.tables.items():
        if type(seq) is not int or not isinstance(tables, list) or len(tables) not in (0, num_groups):
            raise AdapterError(
                f"observe().tables must map sequences to lists of {num_groups} tables; found {seq!r}: {_short(tables)}"
            )
        for table in tables:
            _check_ids(f"observe().tables[{seq}]", table)
    if (
        not isinstance(observed.free, tuple)
        or len(observed.free) != 2
        or any(type(x) is not int for x in observed.free)
    ):
        raise AdapterError(f"observe().free must be two ints, for GPU and host; it is {_short(observed.free)}")
    if not isinstance(observed.reserved, tuple):
        raise AdapterError(f"observe().reserved must be a tuple of block ids; it is {_short(observed.reserved)}")
    for field in ("refs", "free_ids"):
        if getattr(observed, field) is not None:
            _check_ids(f"observe().{field}", getattr(observed, field))


def _check_ids(what: str, ids: Any) -> None:
    if not isinstance(ids, list) or any(type(x) is not int for x in ids):
        raise AdapterError(f"{what} must be a list of ints; it is {_short(ids)}")


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # such as a list that is nested too deeply
        text = f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
