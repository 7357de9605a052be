"""What the judge knows: the sequences it told the subject of, their tokens, and what was computed of them."""

from enum import Enum

from kvproof.spec.identity import Identities, Image, Key, item_at
from kvproof.spec.state import NONE


class Status(Enum):
    """Where a sequence is in its life, as the engine sees it."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"


class Sequence:
    """One sequence: its tokens (as told), the identity of each position, and how far it is computed."""

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
        "last",
        "num_prompt",
        "shown",
        "slot",
        "status",
        "tokens",
    )

    def __init__(self, seq_id: int, group: "Group", key: Key, images: tuple[Image, ...], root: int) -> None:
        self.id, self.group, self.key, self.images = seq_id, group, key, images
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
        self.shown: list[int] = []  # the table as last observed

    @property
    def num_unseen(self) -> int:
        """Tokens that no step has computed or is about to."""
        return len(self.tokens) - self.computed

    def grow(self, identities: Identities, token: int) -> None:
        """One more token is known."""
        self.last = identities.after(self.last, item_at(len(self.tokens), token, self.images))
        self.tokens.append(token)
        self.identities.append(self.last)

    def forked(self, child_id: int) -> "Sequence":
        """A child with the same tokens, as far computed."""
        child = Sequence(child_id, self.group, self.key, self.images, self.last)
        child.tokens, child.identities = self.tokens[:], self.identities[:]
        child.num_prompt, child.computed, child.status = self.num_prompt, self.computed, self.status
        return child


class Group:
    """Sequences of one request, and its encoder sequence if it has one."""

    __slots__ = ("encoder", "id", "members")

    def __init__(self, group_id: int) -> None:
        self.id = group_id
        self.members: list[Sequence] = []
        self.encoder: Sequence | None = None

    def all_are(self, status: Status) -> bool:
        """Whether every member has that status."""
        return all(seq.status is status for seq in self.members)

    @property
    def is_busy(self) -> bool:
        """Whether a member is scheduled in the step under way."""
        return any(seq.is_busy for seq in self.members)
