"""The expected state: the sequences that the judge gave to the subject, their tokens, and what was computed of them.

A sequence has a table in each KV group of its manager. What belongs to one table (the identities that its blocks hold,
how far back its layers read, its number in the state of the specification) is kept in a *part*. The sequence itself is
its part in the first group, so with one group there is one object.
"""

from enum import Enum

from kvproof.spec.text.identity import Identities, Image, Key, item_at
from kvproof.spec.text.state import NONE


class Status(Enum):
    """Where a sequence is in its life, as the engine sees it."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"


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
        "key",
        "kv_group",
        "last",
        "num_prompt",
        "observed_table",
        "parts",
        "slot",
        "status",
        "tokens",
        "window",
    )

    def __init__(
        self, seq_id: int, group: "Group", key: Key, images: tuple[Image, ...], root: int, window: int = 0
    ) -> None:
        self.id, self.group, self.key, self.images = seq_id, group, key, images
        self.kv_group, self.window = 0, window
        self.parts: tuple[ExpectedSequence, ...] = (self,)
        self.tokens: list[int] = []
        self.identities: list[int] = []
        self.last = root  # the identity of the last position, or the root
        self.num_prompt = 0
        self.computed = 0  # positions with KV, those of the scheduled step included
        self.hit = 0
        self.status = Status.WAITING
        self.is_busy = False  # scheduled in the step under way
        self.is_encoder = False
        self.slot = NONE  # its number in the state of the specification
        self.observed_table: list[int] = []  # the table as last observed

    def add_part(self, root: int, window: int) -> None:
        """The sequence has a table in one more KV group."""
        part = ExpectedSequence(self.id, self.group, self.key, self.images, root, window)
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

    def grow(self, identities: Identities, token: int) -> None:
        """Append a token."""
        item = item_at(len(self.tokens), token, self.images)
        self.tokens.append(token)
        for part in self.parts:
            part.last = identities.after(part.last, item)
            part.identities.append(part.last)

    def drop_last_token(self) -> None:
        """Remove the last token, which no table has yet: its result was dropped."""
        self.tokens.pop()
        for part in self.parts:
            part.identities.pop()
            part.last = part.identities[-1]

    def forked(self, child_id: int) -> "ExpectedSequence":
        """A child with the same tokens, computed as far."""
        child = ExpectedSequence(child_id, self.group, self.key, self.images, self.last, self.window)
        child.tokens = self.tokens[:]
        for part in self.parts[1:]:
            child.add_part(part.last, part.window)
        for old, new in zip(self.parts, child.parts, strict=True):
            new.identities = old.identities[:]
        child.num_prompt, child.computed, child.status = self.num_prompt, self.computed, self.status
        return child


class Group:
    """Sequences of one request, and its encoder sequence if it has one."""

    __slots__ = ("encoder", "id", "members")

    def __init__(self, group_id: int) -> None:
        self.id = group_id
        self.members: list[ExpectedSequence] = []
        self.encoder: ExpectedSequence | None = None

    @property
    def all_seqs(self) -> list[ExpectedSequence]:
        """The members, and the encoder sequence if there is one."""
        return [*self.members, self.encoder] if self.encoder else self.members[:]

    def all_are(self, status: Status) -> bool:
        """Whether every member has that status."""
        return all(seq.status is status for seq in self.members)

    @property
    def is_busy(self) -> bool:
        """Whether a member is scheduled in the step under way."""
        return any(seq.is_busy for seq in self.members)
