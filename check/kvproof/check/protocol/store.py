"""The protocol of a KV store: the calls that it must offer to be judged, with keys and slots only.

A store keeps the KV of many requests outside the device: in host memory, on disks, at peers. It has slots; a *key*
names the content of one slot. The store moves no bytes. It decides which slot belongs to which key, and somebody else
(the worker) copies: a *store* transfer writes slots, a *load* transfer reads them. The judge is this worker. It keeps
the bytes, decides when a transfer lands and for which keys it fails, and in which order the store is informed.

Numbers. Keys, requests and transfers are numbers that the judge chooses; two transfers that are under way never have
the same number. Slots are numbers from 0 on. An entry is *staged* while it is written, so that no look-up may find it,
and *resident* when its store has ended well.

Paths. In a store that declares `paths`, a key is a page of a sequence together with all pages before it, so keys form
trees: `path_to`. Every call names a path from the first page on, and a transfer that fails for a page fails for those
after it.

Lower tiers. A store may answer `begin_store` with `Asked`: it first asks a lower tier which of the keys that has, and
takes slots when this has answered (`begin_asked`). And a store whose keys are written may copy them to a lower tier:
then `end_store` answers with `Copied`, and the judge is the worker of this load too.

Large stores. A store may also have `observe_part()`: an observation without entries, with the count of free slots. The
judge of a large store asks for this after most calls.

Errors are as in `protocol.manager`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from msgspec import UNSET, UnsetType

from kvproof.check.protocol.adapter_check import RequiredCalls, calls_of, check_answer, short
from kvproof.check.protocol.capabilities import Capabilities, StoreCan
from kvproof.check.protocol.features import Setting
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Assumption, Config, Refused
from kvproof.check.protocol.operations import Ids, Positive, TypedOperation, one_or_one_less, smaller_numbers

# The answers of a look-up for one key
MISS, HIT, PENDING, RETRY = ANSWERS = "miss", "hit", "pending", "retry"
NO_SLOT = -1  # the slot of a key that `begin_load` does not give
LRU = "lru"


@dataclass(frozen=True)
class StoreConfig(Config):
    """One configuration of a store: `num_slots` slots, and the three fields below.

    What it has in common with the configurations of other levels means nothing to a store; `num_gpu_blocks`, in which
    every level counts its blocks, is another name of `num_slots`.
    """

    block_size: int = 1
    replacement: str = LRU  # what it evicts first, by the engine's name for it: one of `StoreCan.replacements`
    lease_seconds: int = 10  # how long a lease is in force, in a store that declares `leases`
    lazy_stores: bool = False  # what is stored is what the device evicts next; of a store that declares `lazy_stores`
    num_parts: int = 1  # how many readers each load has, in a store that declares `parts`

    @property
    def num_slots(self) -> int:
        """How many slots the store has."""
        return self.num_gpu_blocks

    def as_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, by name."""
        default = asdict(StoreConfig())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


STORE_SETTINGS = (
    Setting("replacement", lambda config: (LRU,), rank=lambda replacement: replacement != LRU),
    Setting("lease_seconds", lambda config: (StoreConfig.lease_seconds,), least=1, rank=lambda seconds: seconds != 10),
    Setting("lazy_stores", lambda config: (False,)),
    Setting("num_parts", lambda config: (1, 2), least=1, rank=lambda number: number),
)


class Staged(NamedTuple):
    """A store began. keys: those that it will write, of the keys that were asked for. slots: one for each of them.

    evicted: the keys that the call evicted; None if the store does not report them. from_device: the bytes come from
    the device, by copies of one stream: each arrives whole, and in the order in which they began.
    """

    keys: list[int]
    slots: list[int]
    evicted: list[int] | None = None
    from_device: bool = False


class Asked(NamedTuple):
    """A store first asks a lower tier for these keys, of those that it was asked for. It has given no slot yet."""

    keys: list[int]


class Copied(NamedTuple):
    """What was stored is copied to a lower tier: a load of these keys from these slots, with the transfer's number."""

    keys: list[int]
    slots: list[int]


class StoreObservation(NamedTuple):
    """The state that a store shows after a call.

    entries: for each key that has a slot, staged or resident, that slot. free: the number of slots without an entry, as
    the store counts them. refs: for each key, the number of loads (and leases) that hold it, -1 while it is staged;
    None if the store does not show this. free_ids: the slots without an entry, duplicates included; None if not shown.
    """

    entries: dict[int, int]
    free: int
    refs: dict[int, int] | None = None
    free_ids: list[int] | None = None


def check_store_observation(observed: Any) -> None:
    """Raise AdapterError unless this is a StoreObservation whose every field has the right type."""
    check_answer("observe", observed, StoreObservation)
    for name, table in (("entries", observed.entries), ("refs", observed.refs or {})):
        if not isinstance(table, dict) or any(type(one) is not int for pair in table.items() for one in pair):
            raise AdapterError(f"observe().{name} must be a dict of ints; it is {short(table)}", "observe")
    free, ids = observed.free, [] if observed.free_ids is None else observed.free_ids
    if type(free) is not int or not isinstance(ids, list) or any(type(one) is not int for one in ids):
        text = f"observe().free must be an int and free_ids a list of ints; they are {short((free, ids))}"
        raise AdapterError(text, "observe")


class StoreSubject(Protocol):
    """A store behind an adapter."""

    name: str
    assumptions: tuple[Assumption, ...]

    @property
    def capabilities(self) -> StoreCan:
        """What it declares that it can do."""

    def open(self, config: StoreConfig) -> None:
        """Make a new store without entries, and forget the old one. Raises Unsupported."""

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        """For each key "hit", "miss", "pending" (it is staged) or "retry" (ask again later)."""

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int] | Refused:
        """Hold the keys until `end_load`, and return their slots. Every key is resident.

        A store that declares `loads_any_key` is asked for any key; the slot of a key that it does not give is -1.
        """

    def end_load(self, transfer: int, request: int, keys: list[int]) -> bool | None:
        """The load that held these keys has landed. Hold them no longer.

        A store that declares `remote_loads` answers whether what the load brought counts: False if its lease was over.
        """

    def notice(self, transfer: int, part: int) -> bool | None:
        """A reader of a load is done. After a notice of each, the load is over, and the answer is that of `end_load`.

        A notice may be doubled, or come when the load is over: then it changes nothing.
        """

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Asked | Refused:
        """Give a slot to each key that has none. It may only refuse if too few slots are free or can be evicted."""

    def begin_asked(self, transfer: int, request: int, keys: list[int]) -> Staged:
        """The lower tier has these keys, of those that the transfer asked it for. Give slots to them, or to fewer."""

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> Copied | None:
        """The store has landed: `stored` are written and can be found from now on, `failed` are given up."""

    def touch(self, request: int, keys: list[int]) -> None:
        """The request uses these keys, which may be unknown. Changes at most what is evicted first."""

    def finish(self, request: int) -> None:
        """The request begins no further transfer. Those that it began may still be under way."""

    def evict(self, keys: list[int]) -> list[int]:
        """Drop those of these keys that nobody holds, and return them. Of a store that declares `evicts_on_call`."""

    def clear(self) -> None:
        """Drop every entry. The judge fences every transfer that is under way, and reports none of them."""

    def advance(self, seconds: int) -> None:
        """So many seconds pass. The leases whose time is over are in force no longer: nobody holds what they held.

        The store may count a load whose lease is over until its end is reported, as if it still held its keys.

        What was written under such a lease cannot be found from now on; its slot may be kept until it is needed. The
        end of a transfer may still be reported afterwards, and must change nothing.
        """

    def observe(self) -> StoreObservation:
        """The current state. Changes nothing, and returns copies."""


class StoreAdapter:
    """A base for adapters of stores that need not know which keys are touched and which requests are over."""

    capabilities = StoreCan(lost_hits=0, refusal_slack=0)
    assumptions: tuple[Assumption, ...] = ()

    def touch(self, request: int, keys: list[int]) -> None:
        """Nothing changes."""

    def finish(self, request: int) -> None:
        """Nothing changes."""


STORE_CALLS = RequiredCalls(
    "store subject",
    tuple(
        name for name in calls_of(StoreSubject) if name not in ("advance", "begin_asked", "clear", "evict", "notice")
    ),
    declared=(
        ("leases", "has leases", ("advance",)),
        ("reset", "can be cleared", ("clear",)),
        ("evicts_on_call", "evicts on call", ("evict",)),
        ("asks_first", "asks a lower tier first", ("begin_asked",)),
        ("parts", "has loads of several readers", ("notice",)),
    ),
    marks=("begin_store", "end_store", "look_up"),
)


# Operations -------------------------------------------------------------------------------------------------------


class StoreOperation(TypedOperation, frozen=True):
    """What requests and the worker ask of a store."""


class WithKeys(StoreOperation, frozen=True):
    """A request asks something about keys."""

    request: int
    keys: Ids

    def simpler(self) -> Iterator["WithKeys"]:
        yield from (self.changed(keys=keys) for keys in fewer_keys(self.keys))

    def text(self, config: Config) -> str:
        return f"{self.name()}(request {self.request}, {keys_text(self.keys)})"


class LookUp(WithKeys, tag="look_up", frozen=True):
    """The request asks which of the keys the store has."""

    is_optional: ClassVar[bool] = True


class Touch(WithKeys, tag="touch", frozen=True):
    """The request uses the keys."""

    is_optional: ClassVar[bool] = True


class Begin(StoreOperation, frozen=True):
    """A transfer begins for a request."""

    transfer: int
    request: int
    keys: Ids

    def simpler(self) -> Iterator["Begin"]:
        yield from (self.changed(keys=keys) for keys in fewer_keys(self.keys))

    def text(self, config: Config) -> str:
        return f"{self.name()}(transfer {self.transfer}, request {self.request}, {keys_text(self.keys)})"


class BeginStore(Begin, tag="begin_store", frozen=True):
    """The request wants the store to keep these keys."""


class BeginLoad(Begin, tag="begin_load", frozen=True):
    """The request wants to read these keys."""

    is_optional: ClassVar[bool] = True


class Land(StoreOperation, tag="land", frozen=True):
    """The bytes of a transfer move, except for the keys at these places of its keys, for which it fails.

    Of a transfer that asked a lower tier, and has no slots yet: the tier answers that it has the other keys.
    """

    transfer: int
    failed: Ids | UnsetType = UNSET

    def simpler(self) -> Iterator["Land"]:
        if self.failed:
            yield Land(self.transfer)
            yield from (self.changed(failed=(place,)) for place in self.failed if len(self.failed) > 1)

    def text(self, config: Config) -> str:
        failed = f", fails for {', '.join(f'no. {place}' for place in self.failed)}" if self.failed else ""
        return f"land(transfer {self.transfer}{failed})"


class Report(StoreOperation, tag="report", frozen=True):
    """The store learns that a transfer has landed."""

    transfer: int


class Notice(StoreOperation, tag="notice", frozen=True):
    """A reader of a load is done, or says so once more."""

    is_optional: ClassVar[bool] = True
    transfer: int
    part: int

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.parts


class Finish(StoreOperation, tag="finish", frozen=True):
    """The request is over: it begins no further transfer."""

    is_optional: ClassVar[bool] = True
    request: int


class Wait(StoreOperation, tag="wait", frozen=True):
    """Time passes."""

    is_optional: ClassVar[bool] = True
    seconds: Positive

    def simpler(self) -> Iterator["Wait"]:
        yield from (self.changed(seconds=seconds) for seconds in one_or_one_less(self.seconds))

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.leases


class Evict(StoreOperation, tag="evict", frozen=True):
    """Drop those of the keys that nobody holds."""

    is_optional: ClassVar[bool] = True
    keys: Ids

    def simpler(self) -> Iterator["Evict"]:
        yield from (Evict(keys) for keys in fewer_keys(self.keys))

    def text(self, config: Config) -> str:
        return f"evict({keys_text(self.keys)})"

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.evicts_on_call


class Clear(StoreOperation, tag="clear", frozen=True):
    """Drop every entry."""

    is_optional: ClassVar[bool] = True

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.reset


def fewer_keys(keys: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The first ones only, or the last ones of many, then all without one of them."""
    yield from (keys[:number] for number in smaller_numbers(len(keys)))
    if len(keys) > NUM_KEYS_ONE_BY_ONE:
        yield from (keys[-number:] for number in smaller_numbers(len(keys)) if number)
    if 1 < len(keys) <= NUM_KEYS_ONE_BY_ONE:
        yield from (keys[:at] + keys[at + 1 :] for at in range(len(keys)))


NUM_KEYS_ONE_BY_ONE = 16
# The pages of a tree: for each, the one before it. The keys of the next tree are so many more.
PAGES_BEFORE = (None, 0, 1, 2, 1, 4, None, 6)


def path_to(key: int) -> tuple[int, ...]:
    """The pages up to this one, of a store that declares `paths`."""
    before = PAGES_BEFORE[key % len(PAGES_BEFORE)]
    tree = key - key % len(PAGES_BEFORE)
    return (key,) if before is None else (*path_to(tree + before), key)


def keys_text(keys: Sequence[int]) -> str:
    """The keys with their noun."""
    return f"key{'s' if len(keys) > 1 else ''} {', '.join(map(str, keys))}"
