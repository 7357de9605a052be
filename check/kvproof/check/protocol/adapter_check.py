"""Check that an adapter keeps the protocol of its level: it has every call, and its answers have the right types.

Types are not checked at each call, for speed. They are checked when a subject is opened, and again before a finding is
believed, so that a wrong type is reported as a fault of the adapter and not as one of the engine.
"""

from collections import deque
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from kvproof.check.protocol.adapter_fault import wrapped
from kvproof.check.protocol.block_events import EventSubject
from kvproof.check.protocol.capabilities import RECORDS, Capabilities, OfALevel, whole
from kvproof.check.protocol.finding import ADDRESS, AdapterError
from kvproof.check.protocol.manager import Assumption, ManagerSubject, Observation
from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.spec.text.budgets import POLICIES
from kvproof.spec.text.eviction_policy import BLOCK_LRU, EMPTY_FIRST_LRU, KEY_LRU, RELEASE_LRU, SEQUENCE_LRU

# How many ids a list may have: this many, and so many for each block. A block that is freed twice is one id too many,
# and in a large pool the judge compares lists after one operation for each eight blocks.
IDS_MAX, IDS_OF_A_BLOCK_MAX = 100_000, 256
TIMES_MAX = 1_000  # that one call may list a pair
EVICTIONS = "", BLOCK_LRU, SEQUENCE_LRU, RELEASE_LRU, EMPTY_FIRST_LRU, KEY_LRU
INT_END = 1 << 63  # what a message from the process of the subject can hold


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


MANAGER_CALLS = RequiredCalls(
    "manager subject",
    calls_of(ManagerSubject),
    declared=(
        ("block_events", "reports events", calls_of(EventSubject)),
        ("common_blocks", "names common blocks", ("common_blocks",)),
        ("loads", "takes KV from elsewhere", ("new_elsewhere",)),
        ("prefixes", "shares named prefixes", ("new_prefix",)),
        ("own_property", "states a property of its own", ("check",)),
        ("records_kept", "limits its records", ("num_records",)),
    ),
)


def check_adapter(subject: Any, required: RequiredCalls, hint: str = "", name: str = "") -> None:
    """Raise AdapterError unless the subject has the required calls, its capabilities and its name.

    hint: what to do if a call is missing. name: what messages call it; by default the name of its class.
    """
    name = name or type(wrapped(subject)).__name__
    if missing := [call for call in required.always if not _has(subject, call)]:
        raise AdapterError(f"{name} is not a {required.noun}: it has no {', '.join(missing)}{hint}")
    can = capabilities_of(subject, name)
    for capability, words, calls in required.declared:
        missing = [call for call in calls if not _has(subject, call)]
        if getattr(can, capability) and missing:
            raise AdapterError(f"{name} declares that it {words}, and has no {', '.join(missing)}")
    if not isinstance(getattr(subject, "name", None), str):
        raise AdapterError(f"{name}.name must be a string; it is {short(getattr(subject, 'name', None))}")
    assumptions = getattr(subject, "assumptions", ())
    if not isinstance(assumptions, tuple) or not all(isinstance(one, Assumption) for one in assumptions):
        raise AdapterError(f"{name}.assumptions must be a tuple of Assumption; it is {short(assumptions)}")


def capabilities_of(subject: Any, name: str = "") -> Capabilities:
    """The capabilities of the subject. Raises AdapterError if they are wrong; name: see check_adapter."""
    name = name or type(wrapped(subject)).__name__
    offered = getattr(subject, "capabilities", None)
    for declared, capabilities in _right:
        if declared is offered:
            return capabilities
    if not isinstance(offered, RECORDS):
        kinds = ", ".join(kind.__name__ for kind in RECORDS[:-1])
        raise AdapterError(f"{name}.capabilities must be a {kinds} or {RECORDS[-1].__name__}; it is {short(offered)}")
    capabilities = whole(offered)
    if wrong := _wrong_capability(capabilities):
        raise AdapterError(f"{name}.capabilities.{wrong}")
    _right.append((offered, capabilities))
    return capabilities


# What was found right last, and what it is as a whole; a walk asks for the same ones in every run.
_right: deque[tuple[OfALevel, Capabilities]] = deque(maxlen=4)


def _wrong_capability(capabilities: Capabilities) -> str:
    """A capability of the wrong type, and why it is; empty if there is none."""
    declared = {one.name: getattr(capabilities, one.name) for one in fields(capabilities)}
    try:
        msgspec.convert(declared, Capabilities, strict=True)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        return f"{place.rstrip('`')} is wrong: {text}"
    if wrong := _unknown_word(capabilities):
        return wrong
    if negative := next((name for name, value in declared.items() if type(value) is int and value < 0), ""):
        return f"{negative} is wrong: {declared[negative]} is less than 0"
    return ""


def _unknown_word(capabilities: Capabilities) -> str:
    """A capability that names what kvproof does not know, and what there is instead; empty if there is none."""
    named = ("eviction", (capabilities.eviction,), EVICTIONS), ("policies", capabilities.policies, POLICIES)
    for name, words, known in named:
        if foreign := [word for word in words if word not in known]:
            question, choice = did_you_mean(foreign[0], known), ", ".join(filter(None, known))
            return f"{name} is wrong: there is no {foreign[0]!r}{question}; choose from {choice}"
    return ""


def _has(subject: Any, call: str) -> bool:
    return callable(getattr(subject, call, None))


def check_answer(name: str, answer: Any, *types: type) -> None:
    """Raise AdapterError unless the answer of a call is of one of the types."""
    if not isinstance(answer, types) or (answer is True and bool not in types):
        wanted = " or ".join(t.__name__ for t in types)
        raise AdapterError(f"{name} must return {wanted}; it returned {short(answer)}", _call_of(name))


def check_pairs(name: str, pairs: Any, num_most: int | None = None) -> None:
    """Raise AdapterError unless these are pairs of block ids.

    num_most: how many different ones a call can need. It may list a pair again and again, as for each layer.
    """
    check_answer(name, pairs, list, tuple)
    if num_most is not None and len(pairs) > (num_most := num_most * TIMES_MAX):
        raise AdapterError(
            f"{name} must return at most {num_most:,} pairs here; it returned {len(pairs):,}", _call_of(name)
        )
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(type(x) is int for x in pair)):
            raise AdapterError(f"{name} must return pairs of ints; one is {short(pair)}", _call_of(name))


def check_observation(observed: Any, num_groups: int, num_blocks: int | None = None) -> None:
    """Raise AdapterError unless this is an Observation whose every field has the right type and length.

    num_groups: the number of KV groups, and so of tables of each sequence. num_blocks: of both devices together.
    """
    check_answer("observe", observed, Observation)
    if not isinstance(observed.tables, dict):
        raise AdapterError(f"observe().tables must be a dict; it is {short(observed.tables)}", "tables")
    for seq, tables in observed.tables.items():
        if type(seq) is not int:
            text = f"observe().tables must be a dict whose keys are sequences, which are ints; a key is {short(seq)}"
            raise AdapterError(text, "tables")
        if not isinstance(tables, list) or len(tables) not in (0, num_groups):
            text = f"observe().tables must map sequences to lists of {num_groups} tables"
            raise AdapterError(f"{text}; found {seq!r}: {short(tables)}", "tables")
        for table in tables:
            check_ids(f"observe().tables[{seq}]", table, num_blocks, "tables")
    free = observed.free
    if not isinstance(free, tuple) or len(free) != 2 or not all(type(x) is int and abs(x) < INT_END for x in free):
        text = f"observe().free must be two ints of at most 64 bits, for GPU and host; it is {short(free)}"
        raise AdapterError(text, "num_free")
    if not isinstance(observed.reserved, tuple) or any(type(x) is not int for x in observed.reserved):
        text = f"observe().reserved must be a tuple of block ids; it is {short(observed.reserved)}"
        raise AdapterError(text, "observe")
    if observed.kept:
        check_ids("observe().kept", list(observed.kept), num_blocks, "observe")
    if observed.free_ids is not None:
        check_ids("observe().free_ids", observed.free_ids, num_blocks, "free_ids")
    if observed.refs is not None:
        check_ids("observe().refs", observed.refs, num_blocks, "refcounts")
        if num_blocks not in (None, len(observed.refs)):
            text = f"observe().refs must have {num_blocks} refcounts, one for each GPU block and then each host block"
            raise AdapterError(f"{text}; it has {len(observed.refs)}", "refcounts")


def check_new(observed: Observation, num_gpu_blocks: int) -> None:
    """Raise AdapterError if a new manager counts host blocks as free, and lists only GPU blocks as free."""
    gpu, host = observed.free
    if host > 0 and observed.free_ids and len(observed.free_ids) == gpu and max(observed.free_ids) < num_gpu_blocks:
        text = f"free_ids must have the ids of the {host} free host blocks too, which begin at {num_gpu_blocks}"
        raise AdapterError(f"{text}; it has {gpu} ids of GPU blocks", "free_ids")


def require_length(what: str, length: int, num_blocks: int, call: str) -> None:
    """Raise AdapterError if a list of numbers in an answer is far too long.

    It is asked before anything walks through the list: copying tens of millions of ids takes longer than a call may. A
    list that is only a little too long is the manager's, such as one that a block was put on twice.
    """
    if length > IDS_MAX + IDS_OF_A_BLOCK_MAX * num_blocks:
        raise AdapterError(f"{what} has a list of {length:,} entries, but there are {num_blocks:,} blocks", call)


def check_ids(what: str, ids: Any, num_blocks: int | None, call: str) -> None:
    """Raise AdapterError unless this is a list of ints that is not far too long."""
    if isinstance(ids, list) and num_blocks is not None:
        require_length(what, len(ids), num_blocks, call)
    if not isinstance(ids, list) or any(type(x) is not int for x in ids):
        raise AdapterError(f"{what} must be a list of ints; it is {short(ids)}", call)


def check_numbers(what: str, value: Any, kind: type = int) -> None:
    """Raise AdapterError unless all that is in an answer, at any depth, is an int, or of another kind, or None."""
    if isinstance(value, list | tuple | set | frozenset):
        for one in value:
            check_numbers(what, one, kind)
    elif value is not None and not isinstance(value, kind):
        sentence = f"{what} must have {kind.__name__}s; it has {short(value)}, a {type(value).__name__}"
        raise AdapterError(sentence, _call_of(what))


def _call_of(name: str) -> str:
    """The call in the name of an answer, such as `reserve` in "reserve().copies"."""
    return name.split("(")[0].strip()


def short(value: Any) -> str:
    """The value as text, shortened and without addresses."""
    try:
        text = ADDRESS.sub("", repr(value))
    except Exception as error:  # such as a list that is nested too deeply
        text = f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
