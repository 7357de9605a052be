"""A base for adapters of block managers: features that the manager does not have need no code.

An adapter derives from `ManagerAdapter`. It declares what its manager can do (`capabilities`), makes the manager
(`make`), and passes on each call of an engine, usually in one line. The base keeps the rest of the protocol: which
sequences are in which group, which tokens are whose, and which sequences have blocks. The judge never makes a call that
needs an undeclared capability.

At least `make`, `allocate`, `append`, `release`, `tables` and `num_free` have to be defined. `open` raises AdapterError
and names the missing ones, and those that a declared capability needs (`NEEDED`).
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from operator import length_hint
from typing import Any

from kvproof.check.protocol.adapter_check import check_answer, check_pairs, require_length, short
from kvproof.check.protocol.capabilities import ManagerCan, whole
from kvproof.check.protocol.features import require_capable
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import (
    Admission,
    Admitted,
    Assumption,
    Config,
    Observation,
    Pair,
    Refused,
    Reserved,
    Scheduled,
)
from kvproof.check.protocol.own_property import OwnState
from kvproof.check.protocol.records import num_records
from kvproof.spec.text.identity import Image, Key

BOOLEAN_ADMISSION = Assumption(
    "boolean-admission",
    "The answer no to a prompt or a swap-in means NEVER if no group has GPU blocks, and LATER otherwise.",
)

ALWAYS = ("make", "allocate", "append", "release", "tables", "num_free")
# Calls that an adapter has to define if it declares one of these capabilities.
NEEDED: dict[str, tuple[str, ...]] = {
    "can_allocate": ("has_admission_query",),
    "can_append": ("has_admission_query",),
    "share": ("fork", "waiting_groups"),
    "hits": ("caching",),
    "computed": ("caching",),
    "reset_cache": ("reset",),
    "new_encoder": ("cross",),
    "new_prefix": ("prefixes",),
    "new_elsewhere": ("loads",),
    "common_blocks": ("common_blocks",),
    "can_swap_out": ("swap",),
    "can_swap_in": ("swap",),
    "swap_out": ("swap",),
    "swap_in": ("swap",),
    "num_free_host": ("swap",),
    "check": ("own_property",),
}
# An adapter that defines the call on the right, such as one for whole groups, need not define the one on the left.
INSTEAD = {
    "computed": "step_done",
    "can_allocate": "can_admit",
    "allocate": "admit",
    "append": "reserve",
    "tables": "observe",
    "num_free": "observe",
    "num_free_host": "observe",
}


MODULES = re.compile(r"kvproof\.[\w.]+\.|collections\.abc\.|typing\.")  # in the text of a signature
HELP = "`kvproof init` writes an adapter with every call; `kvproof init --reference` describes them."


def signature_of(name: str) -> str:
    """The arguments and the answer of a call of an adapter, without the modules of the types."""
    text = str(inspect.signature(getattr(ManagerAdapter, name)))
    return name + MODULES.sub("", text).replace("tuple[int, int]", "Pair")


def description_of(name: str) -> str:
    """The sentences that describe a call of an adapter, on one line."""
    return " ".join((inspect.getdoc(getattr(ManagerAdapter, name)) or "").split())


class ManagerAdapter:
    """A block manager as a subject, called sequence by sequence.

    config: the configuration. manager: what `make` returned. tokens: for each sequence its prompt and the tokens that
    were sampled. keys, images: for each sequence what its KV depends on in addition to its tokens. groups: for each
    group the sequences that are not over. first_chunk: during `allocate`, how many tokens beyond the hit the first step
    computes. The results of `tables`, `refcounts` and `free_ids` are copied: they may be the manager's own lists.
    """

    is_base_of_adapters = True  # what goes wrong in a method of a derived class is a fault of the adapter
    name = "manager"
    capabilities: ManagerCan = ManagerCan()
    assumptions: tuple[Assumption, ...] = (BOOLEAN_ADMISSION,)
    refusals: tuple[type[Exception], ...] = ()  # exceptions by which `allocate` and `append` refuse

    manager: Any
    config: Config
    tokens: dict[int, list[int]]
    keys: dict[int, Key]
    images: dict[int, tuple[Image, ...]]
    groups: dict[int, list[int]]
    first_chunk: int

    # What an adapter defines ---------------------------------------------------------------------------------------

    def make(self, config: Config) -> Any:
        """Return a new, empty manager of this configuration. Raises Unsupported for one that it cannot have."""
        raise NotImplementedError

    def can_allocate(self, tokens: list[int]) -> bool | Admission:
        """Whether a prompt of these tokens would get its blocks now. Changes nothing."""
        raise NotImplementedError

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        """Give a sequence blocks for its prompt. Returns how many of its tokens the prefix cache had; None: 0.

        With `hits_within_blocks` it may return `Admitted(hit, copies)`, with (source, target) blocks to copy first.
        """
        raise NotImplementedError

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        """Give a sequence slots for its next `num_tokens` tokens. Returns (source, target) blocks to copy first."""
        raise NotImplementedError

    def release(self, seq: int) -> None:
        """Release all blocks of a sequence."""
        raise NotImplementedError

    def share(self, parent: int, child: int) -> None:
        """Let the child share every block of its parent; nothing is copied yet."""
        raise NotImplementedError

    def tables(self) -> Mapping[int, Sequence[int]] | Mapping[int, Sequence[Sequence[int]]]:
        """The block ids of each sequence that has blocks, in order; with `kv_groups`, several tables each."""
        raise NotImplementedError

    def num_free(self) -> int:
        """The number of GPU blocks that could be taken now: free ones, and cached ones that nobody uses."""
        raise NotImplementedError

    def refcounts(self) -> Sequence[int] | None:
        """The refcount of each GPU block, then of each host block; None if unknown. With it, findings name the call."""
        return None

    def free_ids(self) -> Sequence[int] | None:
        """The ids of all blocks that could be taken, of both devices, in any order; None if unknown."""
        return None

    def num_records(self) -> int:
        """How many records the manager keeps, for a subject that declares `records_kept`."""
        return num_records(self.manager)

    def check(self, state: OwnState) -> bool:
        """Whether `own_property` holds in this state. Changes nothing."""
        raise NotImplementedError

    # The protocol -------------------------------------------------------------------------------------------------

    def open(self, config: Config) -> None:
        """Make a new manager, and forget every group. Raises Unsupported, and AdapterError for a missing definition."""
        self._require_complete()
        require_capable(self.name, config, whole(self.capabilities))
        self.config = config
        self.tokens, self.keys, self.images, self.groups = {}, {}, {}, {}
        self._group_of: dict[int, int] = {}
        self._admitted: set[int] = set()
        self.manager = self.make(config)
        if self.manager is None:
            raise AdapterError("make must return the new manager; it returned None", "make")

    def _require_complete(self) -> None:
        """Raise AdapterError unless the adapter defines each call that its capabilities need."""
        missing = dict.fromkeys(ALWAYS, "")
        for name, capabilities in NEEDED.items():
            if declared := [one for one in capabilities if getattr(self.capabilities, one)]:
                missing[name] = f" (capability {declared[0]})"
        for name in list(missing):
            if self._defines(name) or (name in INSTEAD and self._defines(INSTEAD[name])):
                del missing[name]
        if missing:
            lines = [f"{type(self).__name__} must define {', '.join(missing)}"]
            lines += [f"def {signature_of(name)}: {description_of(name)}{why}" for name, why in missing.items()]
            raise AdapterError("\n  ".join(lines) + f"\n{HELP}", next(iter(missing)))

    def _defines(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(ManagerAdapter, name)

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        """Remember the tokens, key and images of each sequence of a new group."""
        self.groups[group] = list(seqs)
        for seq in seqs:
            self.tokens[seq], self.keys[seq], self.images[seq] = list(tokens), key, images
            self._group_of[seq] = group

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        """The waiting group also has an encoder sequence, which gets a cross-attention table when it is admitted."""
        raise NotImplementedError

    def new_prefix(self, group: int, num_tokens: int) -> None:
        """The waiting group names the first tokens of its prompt as a prefix, whose full blocks the manager keeps."""
        raise NotImplementedError

    def new_elsewhere(self, group: int, num_tokens: int) -> None:
        """Of the first tokens of the waiting group, in whole blocks and not of all, there is KV elsewhere."""
        raise NotImplementedError

    def common_blocks(self, seqs: list[int]) -> list[int]:
        """The ids of the computed blocks with which the tables of all these running sequences begin."""
        raise NotImplementedError

    def grow(self, seq: int, token: int) -> None:
        """Remember a sampled token."""
        self.tokens[seq].append(token)

    def hits(self, group: int) -> int:
        """How many tokens of the group's prompt are found in the prefix cache. Changes nothing."""
        return 0

    def forget(self, group: int) -> None:
        """Called when a looked-up group was not admitted. Drop what the look-up kept."""

    def can_admit(self, group: int) -> Admission:
        """Ask `can_allocate`. False becomes NEVER if no group has GPU blocks, else LATER."""
        return self.admission(self.can_allocate(self.tokens[self.groups[group][0]]))

    def admission(self, answer: bool | Admission) -> Admission:
        """The answer to `can_admit` of a manager that says yes or no: no means NEVER if no group has GPU blocks."""
        if answer is True:
            return Admission.OK
        if isinstance(answer, Admission):
            return answer
        check_answer("can_allocate", answer, bool, Admission)
        return Admission.LATER if self._something_runs() else Admission.NEVER

    def _something_runs(self) -> bool:
        """Whether a group has GPU blocks. Groups that are swapped out have none, and make no room for others."""
        if not self._admitted or not self.capabilities.swap:
            return bool(self._admitted)
        tables, gpu = self.observe().tables.values(), range(self.config.num_gpu_blocks)
        return any(block in gpu for seq_tables in tables for table in seq_tables for block in table)

    def can_append(self, group: int) -> bool | Admission:
        """Whether each sequence of the group would get its next slot now. Changes nothing."""
        raise NotImplementedError

    def can_swap_out(self, group: int) -> bool | Admission:
        """Whether `swap_out` would succeed now. Changes nothing."""
        raise NotImplementedError

    def can_swap_in(self, group: int) -> bool | Admission:
        """Whether `swap_in`, and the append of the same step, would succeed now. Changes nothing."""
        raise NotImplementedError

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        """Allocate blocks for the first sequence of the group, and let the others share them."""
        first, *others = self.groups[group]
        self.first_chunk = max(1, num_tokens)
        try:
            hit = self.allocate(first, self.tokens[first])
        except self.refusals as error:
            return Refused(str(error))
        admitted = hit if isinstance(hit, Admitted) else Admitted(0 if hit is None else hit)
        check_answer("allocate", admitted.hit, int)
        for seq in others:
            self.share(first, seq)
        self._admitted.update(self.groups[group])
        return admitted

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        """Reserve slots by `append`. An exception of `refusals` becomes a refusal."""
        try:
            copies = self.append(seq, num_tokens)
        except self.refusals as error:
            return Refused(str(error))
        if copies is None:
            return Reserved()
        check_pairs("append", copies)
        return Reserved(tuple(copies))

    def fork(self, parent: int, child: int) -> None:
        """Put the child into the group of its parent, and let it share the blocks."""
        self.tokens[child], self.keys[child] = self.tokens[parent][:], self.keys[parent]
        self.images[child], group = self.images[parent], self._group_of[parent]
        self.groups[group].append(child)
        self._group_of[child] = group
        self._admitted.add(child)
        self.share(parent, child)

    def free(self, seq: int) -> None:
        """Forget the sequence. Its blocks are released if it has any."""
        if seq in self._admitted:
            self._admitted.remove(seq)
            self.release(seq)
        self.groups[self._group_of.pop(seq)].remove(seq)
        del self.tokens[seq], self.keys[seq], self.images[seq]

    def preempt(self, group: int) -> None:
        """Release the blocks of each sequence of the group, which waits again."""
        for seq in self.groups[group]:
            self._admitted.remove(seq)
            self.release(seq)

    def swap_out(self, group: int) -> list[Pair]:
        """Move the group to host blocks. Returns (GPU block, host block) pairs; each counts on its own device."""
        raise NotImplementedError

    def swap_in(self, group: int) -> list[Pair]:
        """Move the group back. Returns (host block, GPU block) pairs; each counts on its own device."""
        raise NotImplementedError

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """The step is about to be launched. Does nothing by default."""

    def step_done(self, step: list[Scheduled]) -> None:
        """The step was executed. Calls `computed`, if the prefix cache is on."""
        if self.config.caching:
            self.computed([one.seq for one in step], [one.stop for one in step])

    def computed(self, seqs: list[int], stops: list[int]) -> None:
        """A step has computed the KV of each sequence up to its stop, in tokens: its full blocks can be hit now."""

    def reset_cache(self) -> bool:
        """Forget the prefix cache. Returns False, and forgets nothing, if blocks are in use."""
        raise NotImplementedError

    def num_free_host(self) -> int:
        """The number of host blocks that could be taken now."""
        return 0

    def observe(self) -> Observation:
        """The current state, from `tables`, `num_free`, `num_free_host`, `refcounts` and `free_ids`."""
        tables: Mapping[int, Any] = self.tables()
        refs, free = self.refcounts(), self.free_ids()
        num_free = (self.num_free(), self.num_free_host())
        num_blocks, has_groups = self.config.num_gpu_blocks + self.config.num_host_blocks, self.capabilities.kv_groups
        try:
            require_length("tables", max(map(length_hint, tables.values()), default=0), num_blocks, "tables")
            copies = {seq: list(map(list, one)) if has_groups else [list(one)] for seq, one in tables.items()}
        except (AttributeError, TypeError):
            wanted = "a dict from sequences to lists of block ids"
            raise AdapterError(f"tables must return {wanted}; it returned {short(tables)}", "tables") from None
        lists = _list("refcounts", refs, num_blocks), _list("free_ids", free, num_blocks)
        return Observation(copies, num_free, (), *lists)


def _list(call: str, answer: Sequence[int] | None, num_blocks: int) -> list[int] | None:
    """A copy of an answer that is a list of ints or None. Raises AdapterError for any other one."""
    require_length(call, length_hint(answer), num_blocks, call)
    try:
        return None if answer is None else list(answer)
    except TypeError:
        raise AdapterError(f"{call} must return a list of ints or None; it returned {short(answer)}", call) from None
