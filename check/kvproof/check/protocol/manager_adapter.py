"""A base for adapters: what a block manager does not have needs no line.

An adapter derives from `ManagerAdapter`, says what its manager can do (`capabilities`), makes it (`make`), and hands
on what an engine asks of it, one line each. The rest of the protocol is kept here: who is in which group, whose tokens
are which, and who has blocks. A call that needs a capability which was not declared is never made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvproof.check.protocol.features import require_capable
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import (
    Admission,
    Admitted,
    Assumption,
    Capabilities,
    Config,
    Observation,
    Pair,
    Refused,
    Reserved,
    Scheduled,
)
from kvproof.spec.text.identity import Image, Key

BOOLEAN_ADMISSION = Assumption(
    "boolean-admission", "A manager that answers no to a prompt means never if nothing is allocated, else not now."
)

ALWAYS = ("make", "allocate", "append", "release", "tables", "num_free")
NEEDED: dict[str, Callable[[Capabilities], bool]] = {
    "can_allocate": lambda can: can.has_admission_query,
    "can_append": lambda can: can.has_admission_query,
    "share": lambda can: can.fork or can.waiting_groups,
    "hits": lambda can: can.caching,
    "reset_cache": lambda can: can.reset,
    "new_encoder": lambda can: can.cross,
    "can_swap_out": lambda can: can.swap,
    "can_swap_in": lambda can: can.swap,
    "swap_out": lambda can: can.swap,
    "swap_in": lambda can: can.swap,
    "num_free_host": lambda can: can.swap,
}
# An adapter that defines the call on the right itself, for whole groups, need not define the one on the left.
INSTEAD = {
    "can_allocate": "can_admit",
    "allocate": "admit",
    "append": "reserve",
    "tables": "observe",
    "num_free": "observe",
    "num_free_host": "observe",
}


class ManagerAdapter:
    """A block manager as a subject, sequence by sequence.

    `self.manager` is what `make` returned, `self.tokens[seq]` all tokens of a sequence, `self.keys[seq]` and
    `self.images[seq]` what else its KV depends on, `self.groups[group]` the sequences of a group, `self.config` the
    configuration. Answers of `tables`, `refcounts` and `free_ids` are copied.
    """

    name = "manager"
    capabilities: Capabilities = Capabilities()
    assumptions: tuple[Assumption, ...] = (BOOLEAN_ADMISSION,)
    refusals: tuple[type[Exception], ...] = ()  # what the manager raises to refuse, where it is not asked first

    manager: Any
    config: Config
    tokens: dict[int, list[int]]
    keys: dict[int, Key]
    images: dict[int, tuple[Image, ...]]
    groups: dict[int, list[int]]

    # What an adapter must say -------------------------------------------------------------------------------------

    def make(self, config: Config) -> Any:
        """A new manager. May raise Unsupported."""
        raise NotImplementedError

    def can_allocate(self, tokens: list[int]) -> bool | Admission:
        """Whether a prompt gets its blocks. Needed where `capabilities.has_admission_query`."""
        raise NotImplementedError

    def allocate(self, seq: int, tokens: list[int]) -> int | None:
        """Give a sequence blocks for its prompt; with a prefix cache the number of tokens that were hit."""
        raise NotImplementedError

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        """Give a sequence slots for its next tokens; the (source, target) block copies that the worker must make."""
        raise NotImplementedError

    def release(self, seq: int) -> None:
        """Give up the blocks of a sequence."""
        raise NotImplementedError

    def share(self, parent: int, child: int) -> None:
        """Let the child share every block of its parent. Needed where `capabilities.fork`."""
        raise NotImplementedError

    def tables(self) -> Mapping[int, Sequence[int]] | Mapping[int, Sequence[Sequence[int]]]:
        """The block ids of every sequence that has blocks; where `capabilities.kv_groups`, a table for each group."""
        raise NotImplementedError

    def num_free(self) -> int:
        """How many GPU blocks could be taken."""
        raise NotImplementedError

    def refcounts(self) -> Sequence[int] | None:
        """The refcount of every block, if the manager shows it: findings then name the very call that is wrong."""
        return None

    def free_ids(self) -> Sequence[int] | None:
        """The ids of all free blocks, if the manager shows them."""
        return None

    # The protocol -------------------------------------------------------------------------------------------------

    def open(self, config: Config) -> None:
        """A new manager and an empty world."""
        self._require_complete()
        require_capable(self.name, config, self.capabilities)
        self.config = config
        self.tokens, self.keys, self.images, self.groups = {}, {}, {}, {}
        self._group_of: dict[int, int] = {}
        self._admitted: set[int] = set()
        self.manager = self.make(config)

    def _require_complete(self) -> None:
        """Name the calls that the adapter must have for what it says its manager can do. Raises AdapterError."""
        can = self.capabilities
        needed = [*ALWAYS, *(name for name, is_needed in NEEDED.items() if is_needed(can))]
        missing = [n for n in needed if not (self._defines(n) or (n in INSTEAD and self._defines(INSTEAD[n])))]
        if missing:
            raise AdapterError(f"{type(self).__name__} must define {', '.join(missing)}")

    def _defines(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(ManagerAdapter, name)

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        """A waiting group."""
        self.groups[group] = list(seqs)
        for seq in seqs:
            self.tokens[seq], self.keys[seq], self.images[seq] = list(tokens), key, images
            self._group_of[seq] = group

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        """An encoder sequence."""
        raise NotImplementedError

    def grow(self, seq: int, token: int) -> None:
        """A sampled token."""
        self.tokens[seq].append(token)

    def hits(self, group: int) -> int:
        """A look-up."""
        return 0

    def forget(self, group: int) -> None:
        """Looked up, and not admitted."""

    def can_admit(self, group: int) -> Admission:
        """`can_allocate`; a plain no is never if nothing is allocated, else later."""
        answer = self.can_allocate(self.tokens[self.groups[group][0]])
        if isinstance(answer, Admission):
            return answer
        if answer:
            return Admission.OK
        return Admission.LATER if self._admitted else Admission.NEVER

    def can_append(self, group: int) -> bool:
        """Whether each sequence of the group, `self.groups[group]`, gets its next slot."""
        raise NotImplementedError

    def can_swap_out(self, group: int) -> Admission:
        """Whether `swap_out` would succeed."""
        raise NotImplementedError

    def can_swap_in(self, group: int) -> Admission:
        """Whether `swap_in` would succeed."""
        raise NotImplementedError

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        """`allocate` for the first sequence; the others share its blocks."""
        first, *others = self.groups[group]
        try:
            hit = self.allocate(first, self.tokens[first])
        except self.refusals as error:
            return Refused(str(error))
        for seq in others:
            self.share(first, seq)
        self._admitted.update(self.groups[group])
        return Admitted(hit or 0)

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        """`append`."""
        try:
            return Reserved(tuple(self.append(seq, num_tokens) or ()))
        except self.refusals as error:
            return Refused(str(error))

    def fork(self, parent: int, child: int) -> None:
        """`share`, and the child is in the group of its parent."""
        self.tokens[child], self.keys[child] = self.tokens[parent][:], self.keys[parent]
        self.images[child], group = self.images[parent], self._group_of[parent]
        self.groups[group].append(child)
        self._group_of[child] = group
        self._admitted.add(child)
        self.share(parent, child)

    def free(self, seq: int) -> None:
        """`release`, unless it waits."""
        if seq in self._admitted:
            self._admitted.remove(seq)
            self.release(seq)
        self.groups[self._group_of.pop(seq)].remove(seq)
        del self.tokens[seq], self.keys[seq], self.images[seq]

    def preempt(self, group: int) -> None:
        """`release`; the group waits again."""
        for seq in self.groups[group]:
            self._admitted.remove(seq)
            self.release(seq)

    def swap_out(self, group: int) -> list[Pair]:
        """Move the group to host blocks."""
        raise NotImplementedError

    def swap_in(self, group: int) -> list[Pair]:
        """Move the group back."""
        raise NotImplementedError

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """What is about to be computed."""

    def step_done(self, step: list[Scheduled]) -> None:
        """What was computed."""

    def reset_cache(self) -> bool:
        """Forget the prefix cache."""
        raise NotImplementedError

    def num_free_host(self) -> int:
        """How many host blocks could be taken."""
        return 0

    def observe(self) -> Observation:
        """Copies of what the manager shows."""
        refs, free = self.refcounts(), self.free_ids()
        return Observation(
            {seq: self._tables_of(shown) for seq, shown in self.tables().items()},
            (self.num_free(), self.num_free_host()),
            refs=None if refs is None else list(refs),
            free_ids=None if free is None else list(free),
        )

    def _tables_of(self, shown: Sequence[Any]) -> list[list[int]]:
        return [list(table) for table in shown] if self.capabilities.kv_groups else [list(shown)]
