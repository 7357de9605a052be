"""The expected state: the sequences that the judge gave to the subject, their tokens, and what was computed of them.

A sequence has a table in each KV group of its manager. What belongs to one table (the identities that its blocks hold,
how far back its layers read, its number in the state of the specification) is kept in a *part*. The sequence itself is
its part in the first group, so with one group there is one object.

Lengths of a sequence are in tokens. A part translates them to slots of its table (`kvproof.spec.text.kv_groups`).
"""

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum

from kvproof.check.protocol.operations import clipped
from kvproof.spec.text.identity import Identities, Image, Item, Key, item_at
from kvproof.spec.text.kv_groups import Layout
from kvproof.spec.text.state import NONE

PLAIN = Layout(1, 1)


class Status(Enum):
    """Where a sequence is in its life, as the engine sees it."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"


WAITING, RUNNING, SWAPPED = Status.WAITING, Status.RUNNING, Status.SWAPPED  # a look-up in an enumeration is a call


class ExpectedSequence:
    """One sequence, or its part in a further KV group: its tokens, the identity of each position, and how far it is
    computed. All parts share the list of tokens; the status and progress of a sequence are kept in the first part.
    """

    __slots__ = (
        "computed",
        "group",
        "hit",
        "id",
        "identities",
        "images",
        "is_busy",
        "is_encoder",
        "is_plain",
        "junction",
        "key",
        "kv_group",
        "last",
        "layout",
        "left_out",
        "num_prompt",
        "num_sent",
        "observed_table",
        "parts",
        "prefix",
        "slot",
        "status",
        "tokens",
        "whole",
        "window",
    )

    def __init__(
        self,
        seq_id: int,
        group: "Group",
        key: Key,
        images: tuple[Image, ...],
        root: int,
        window: int = 0,
        layout: Layout = PLAIN,
    ) -> None:
        """window: in tokens."""
        self.id, self.group, self.key, self.images = seq_id, group, key, images
        self.kv_group, self.window, self.layout = 0, layout.window(window), layout
        self.is_plain = layout.is_plain  # a slot is a token
        self.parts: tuple[ExpectedSequence, ...] = (self,)
        self.prefix: PrefixPart | None = None  # its entries in a named prefix, where a swap leaves them on the GPU
        self.tokens: list[int] = []
        self.whole: list[int] = []  # the identity of each slot, if no entry is left out
        self.identities = self.whole  # without those of the entries that are left out
        self.left_out: list[int] = []  # entries of the table that never get a block, in order
        self.last = root  # the identity of the last position, or the root
        self.num_prompt = 0
        self.num_sent = 0  # tokens of the prompt that its user sent
        self.computed = 0  # positions with KV, those of the scheduled step included
        self.hit = 0
        self.junction = 0  # tokens up to which layers that attend to all tokens found it, if not all layers did
        self.status = WAITING
        self.is_busy = False  # scheduled in the step under way
        self.is_encoder = False
        self.slot = NONE  # its number in the state of the specification
        self.observed_table: list[int] = []  # the table as last observed

    def add_part(self, root: int, window: int, layout: Layout = PLAIN) -> None:
        """The sequence has a table in one more KV group."""
        part = ExpectedSequence(self.id, self.group, self.key, self.images, root, window, layout)
        part.kv_group, part.tokens = len(self.parts), self.tokens
        self.parts = (*self.parts, part)

    @property
    def name(self) -> str:
        """The part, as text."""
        return f"sequence {self.id}" + (f" in KV group {self.kv_group}" if self.kv_group else "")

    @property
    def tables(self) -> list[list[int]]:
        """The tables as last observed, by KV group."""
        return [part.observed_table for part in self.parts]

    @property
    def num_unseen(self) -> int:
        """Tokens that no step has computed or is scheduled to compute."""
        return len(self.tokens) - self.computed

    def at(self, num_tokens: int) -> int:
        """How many slots of this part the first tokens take."""
        if self.is_plain and not self.left_out:
            return num_tokens
        num_left_out = bisect_left(self.left_out, num_tokens // self.layout.num_tokens)
        return self.layout.slots(num_tokens) - num_left_out * self.layout.num_slots

    def entries_found(self, num_tokens: int, num_dropped: int) -> range:
        """How many entries of this part have to be found for a hit of so many tokens: each number of the range.

        num_dropped: entries after the hit that are found as well, and dropped. Draft models have no states.
        """
        num_entries = num_tokens // self.layout.num_tokens
        return range(num_entries, num_entries + 1 + (0 if self.layout.is_state else num_dropped))

    def entry_at(self, index: int) -> int:
        """Which entry of the table the specification knows at this index: those that are left out count too."""
        for one in self.left_out:
            index += one <= index
        return index

    def leave_out(self, table: list[int], num_explained: int, null: int) -> list[int]:
        """The table without the entries that never get a block: of those that are new, the null ones.

        num_explained: entries at the beginning of the table that were there before, or were hit.
        """
        if not self.layout.leaves_out:
            return table
        new = [index for index in range(num_explained, len(table)) if table[index] == null]
        if new:
            self.left_out += new
            size, left_out = self.layout.num_slots, set(self.left_out)
            self.identities = [one for at, one in enumerate(self.whole) if at // size not in left_out]
        return self.without_left_out(table)

    def without_left_out(self, table: list[int]) -> list[int]:
        """The entries of a table that the specification knows."""
        left_out = set(self.left_out)
        return [block for index, block in enumerate(table) if index not in left_out] if left_out else table

    def release(self) -> None:
        """The sequence gives up this table; the next one begins from its first entry."""
        self.slot, self.observed_table = NONE, []
        self.identities, self.left_out = self.whole, []

    def grow(self, identities: Identities, token: int) -> None:
        """Append a token."""
        position = len(self.tokens)
        item = item_at(position, token, self.images) if self.images else token
        self.tokens.append(token)
        for part in self.parts:
            part.last = identities.after(part.last, item)
            if part.is_plain:
                part.whole.append(part.last)
                if part.left_out:
                    part.identities.append(part.last)
            else:
                added = part.layout.padded(position, part.last)
                part.whole += added
                if part.left_out:
                    part.identities += added

    def grow_all(self, identities: Identities, tokens: Sequence[int]) -> None:
        """Append tokens, one after another."""
        position = len(self.tokens)
        items: Sequence[Item] = tokens
        if self.images:
            items = [item_at(at, token, self.images) for at, token in enumerate(tokens, position)]
        self.tokens += tokens
        for part in self.parts:
            added = identities.along(part.last, items)
            part.last = added[-1] if added else part.last
            if not part.is_plain:
                added = [slot for at, one in enumerate(added, position) for slot in part.layout.padded(at, one)]
            part.whole += added
            if part.left_out:
                part.identities += added

    def drop_last_token(self, identities: Identities) -> None:
        """Remove the last token, which no table has yet: its result was dropped."""
        self.tokens.pop()
        position = len(self.tokens)
        for number, part in enumerate(self.parts):
            if part.layout.is_in_place:  # one state has no identities of the tokens before
                items = [item_at(at, token, self.images) for at, token in enumerate(self.tokens)]
                part.last = identities.along(identities.root(self.key, number), items)[-1]
                continue
            num_slots = len(part.layout.padded(position, part.last))
            del part.whole[-num_slots:]
            if part.left_out:
                del part.identities[-num_slots:]
            part.last = part.whole[-1]

    def forked(self, child_id: int) -> "ExpectedSequence":
        """A child with the same tokens, computed as far."""
        child = ExpectedSequence(child_id, self.group, self.key, self.images, self.last, layout=self.layout)
        child.tokens = self.tokens[:]
        for part in self.parts[1:]:
            child.add_part(part.last, 0, part.layout)
        for old, new in zip(self.parts, child.parts, strict=True):
            new.window = old.window
            new.whole = new.identities = old.whole[:]
        child.num_prompt, child.computed, child.status = self.num_prompt, self.computed, self.status
        child.num_sent = self.num_sent
        return child


class PrefixPart(ExpectedSequence):
    """The entries of a sequence that lie in a named prefix, where a swap leaves them on the GPU."""

    __slots__ = ("num_slots",)

    def __init__(self, seq: ExpectedSequence, num_slots: int) -> None:
        super().__init__(seq.id, seq.group, seq.key, seq.images, NONE)
        self.num_slots = num_slots
        self.identities = self.whole = seq.whole[:num_slots]

    @property
    def name(self) -> str:
        """The part, as text."""
        return f"sequence {self.id} in its named prefix"

    def at(self, num_tokens: int) -> int:
        """How many slots of this part the first tokens take."""
        return min(num_tokens, self.num_slots)


class NamedPrefix:
    """A prefix that a group has named. identities: those of its slots."""

    __slots__ = ("identities", "is_computed", "num_blocks", "slot")

    def __init__(self, identities: list[int], num_blocks: int) -> None:
        self.identities, self.num_blocks = identities, num_blocks
        self.slot = NONE  # its number in the state of the specification; NONE until a group has allocated it
        self.is_computed = False


class Group:
    """Sequences of one request, and its encoder sequence if it has one."""

    __slots__ = ("elsewhere", "encoder", "id", "members", "prefix")

    def __init__(self, group_id: int) -> None:
        self.id = group_id
        self.members: list[ExpectedSequence] = []
        self.encoder: ExpectedSequence | None = None
        self.prefix: NamedPrefix | None = None
        self.elsewhere = 0  # tokens of the prompt whose KV can be loaded

    @property
    def all_seqs(self) -> list[ExpectedSequence]:
        """The members, and the encoder sequence if there is one."""
        return [*self.members, self.encoder] if self.encoder else self.members[:]

    def all_are(self, status: Status) -> bool:
        """Whether every member has that status."""
        return all(seq.status is status for seq in self.members)


def lie_apart(images: Sequence[Image], num_tokens: int) -> bool:
    """Whether images lie in a prompt of so many tokens, in order and not one on another, as an engine has them."""
    return clipped(images, num_tokens) == tuple(images)
