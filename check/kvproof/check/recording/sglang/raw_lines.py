"""The lines of SGLang, with the tokens of a prompt in place of keys, nodes in place of their ends, and raw page ids.

A lock names a node of the tree. The path from the root to the end of a node never changes, so a node is written as the
key of its last page, which is known from the look-up or the insert that returned the node.
"""

from array import array
from typing import Any

from msgspec import field

from kvproof.check.recording.format import POSITIVE, Header, KeyedDigests, RecordedCall
from kvproof.check.recording.handover import RawCall, RawLines

NUM_NODES_MAX = 1 << 16
TOKEN_BYTES = 8
SLOTS, ONCE, NEW, PAGES = "slots", "once", "new", "pages"  # one slot of each page, all, those that begin one; or pages


class RadixCall(RawCall, array_like=True, omit_defaults=True, gc=False):
    """A line with what the call names.

    The buffers are the tokens of the prompt, whole pages, as 64-bit numbers, and then the numbers of a tensor, if they
    are many.

    numbers: of a tensor, if they are few. what: SLOTS, ONCE, NEW or PAGES. form: of the numbers in the buffer, as for
    `memoryview`; empty if there are none. node: the node that the call names or returned; None for the root. num_bytes:
    of the tokens. tokens: as a list, before 0.5.13. namespace: what else the prompt depends on.
    """

    num_tokens: int = 0
    numbers: list[int] = field(default_factory=list)
    what: str = SLOTS
    node: int | None = None
    num_hit: int = 0
    lookahead: int = 0
    num_bytes: int = 0
    form: str = ""
    namespace: str = ""
    tokens: list[int] | None = None
    unjudged: list[str] = field(default_factory=list)


class RadixLines(RawLines):
    """Makes a key of each page, and remembers where nodes end."""

    kind = RadixCall

    def __init__(self, header: Header, digests: KeyedDigests) -> None:
        super().__init__(header, digests)
        self._page = header.block_size
        self._ends: dict[int, int] = {}  # of the nodes that were named last: the keys of their last pages
        self._locked: dict[int, list[int]] = {}  # of nodes: the key of the last page, and the number of locks

    def completed(self, raw: Any, data: bytes = b"") -> RecordedCall:
        """The line with keys and pages."""
        line = super().completed(raw)
        line.num_tokens, line.num_hit, line.lookahead = raw.num_tokens, raw.num_hit, raw.lookahead
        line.unjudged = raw.unjudged
        handler = getattr(self, f"_{line.call}", None)
        if handler is not None and not line.raised:
            handler(line, raw, data[: raw.num_bytes])
        numbers = memoryview(data)[raw.num_bytes :].cast(raw.form).tolist() if raw.form else raw.numbers
        line.slots = self._pages(numbers, raw.what)
        return line

    def _pages(self, numbers: list[int], what: str) -> list[int]:
        size = self._page
        if what == PAGES:
            return [page - 1 for page in numbers]
        if what == NEW:
            return [slot // size - 1 for slot in numbers if slot % size == 0]
        pages = [slot // size - 1 for slot in numbers]
        return list(dict.fromkeys(pages)) if what == ONCE else pages

    # Keys and nodes -------------------------------------------------------------------------------------------------

    def _keys(self, raw: RadixCall, tokens: bytes) -> list[int]:
        """The pages of a prompt, each as a digest of itself and of everything before it."""
        digest, num_bytes = self.digests.of, self._page * TOKEN_BYTES
        if raw.tokens is not None:
            tokens = array("q", raw.tokens).tobytes()
        last, keys = digest(raw.namespace.encode()), []
        for start in range(0, len(tokens), num_bytes):
            last = digest(last + tokens[start : start + num_bytes])
            keys.append(int.from_bytes(last, "big") & POSITIVE)
        return keys

    def _remember(self, node: int | None, end: int) -> None:
        if node is None:
            return
        self._ends.pop(node, None)
        self._ends[node] = end
        if len(self._ends) > NUM_NODES_MAX:
            del self._ends[next(iter(self._ends))]

    def _end_of(self, node: int | None) -> list[int]:
        """The key of the last page of a node; of the root, none."""
        if node is None:
            return []
        if node in self._locked:
            return [self._locked[node][0]]
        if node not in self._ends:
            raise LookupError(f"no look-up and no insert returned node {node}")
        return [self._ends[node]]

    # Calls of the tree ----------------------------------------------------------------------------------------------

    def _match_prefix(self, line: RecordedCall, raw: RadixCall, tokens: bytes) -> None:
        keys, num_found = self._keys(raw, tokens), line.num_hit
        if num_found:
            self._remember(raw.node, keys[num_found - 1])
        line.keys = keys[max(0, num_found - 1) :]

    def _insert(self, line: RecordedCall, raw: RadixCall, tokens: bytes) -> None:
        keys = self._keys(raw, tokens)
        line.keys = keys[line.num_hit :]
        if keys:
            self._remember(raw.node, keys[-1])

    def _path_device_indices(self, line: RecordedCall, raw: RadixCall, tokens: bytes) -> None:
        line.keys = self._end_of(raw.node)

    def _inc_lock_ref(self, line: RecordedCall, raw: RadixCall, tokens: bytes) -> None:
        line.keys, node = self._end_of(raw.node), raw.node
        if node is not None:
            self._locked.setdefault(node, [line.keys[0], 0])[1] += 1

    def _dec_lock_ref(self, line: RecordedCall, raw: RadixCall, tokens: bytes) -> None:
        line.keys, node = self._end_of(raw.node), raw.node
        if node is not None and node in self._locked:
            self._locked[node][1] -= 1
            if not self._locked[node][1]:
                self._remember(node, self._locked.pop(node)[0])

    def _reset(self, line: RecordedCall, raw: RadixCall, tokens: bytes) -> None:
        self._ends.clear()
        self._locked.clear()
