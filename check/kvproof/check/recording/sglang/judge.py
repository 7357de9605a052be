"""The meaning of the calls of SGLang's pool and prefix cache, judged by the rules of stores.

A page that a request has taken is being written, under a name of its own. An insert gives it the name of its prefix:
the write ends, and the page can be found. A page of which the tree has another copy keeps its own name until it is
given back. A lock on a node holds every page from the root to the end of the node, as a load does. What the tree gives
back while it evicts was held by nobody.

Every request has a lock, at least on the root, from before it takes its first page until it ends. So when a look-up
comes and there is no lock, no page is being written. (A request that moves its lock has none for a moment.)
"""

from collections import Counter
from collections.abc import Callable

from kvproof.check.oracle.store.transfer import Transfer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.operations import count
from kvproof.check.protocol.store import NO_SLOT, StoreObservation
from kvproof.check.recording.format import ENDED, Header, RecordedCall
from kvproof.check.recording.replayed_subject import Unjudged
from kvproof.check.recording.store_lines import StoreLines
from kvproof.spec.store.state import NONE

EVICTIONS = ("evict", "evict_for_alloc")


class RadixJudge(StoreLines):
    """Judges a recording of a prefix cache and its pool."""

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._page, self._has_tree, self._shows_pool = header.block_size, header.caching, header.shows_pool
        self._written: dict[int, Transfer] = {}  # pages of requests, which the tree does not have
        self._before: dict[int, int | None] = {}  # of each key in the tree: the key of the page before it
        self._locks: Counter[int] = Counter()  # of each key
        self._loads: dict[int, Transfer] = {}  # of each key that is locked
        self._num_locks = self._num_late = self._num_names = 0  # late: pages that are free at the end of a group

    def explain(self, line: RecordedCall) -> None:
        super().explain(line)
        if line.call == ENDED:
            self.store.context = "the end"
            self._require_rest()

    def explain_call(self, line: RecordedCall, handler: Callable[[RecordedCall], None]) -> None:
        self.replayed.play(line)
        self.store.context = line.call
        if line.raised:
            raise Finding(
                "total-calls", "the call raised $error", call=self.store.context, values={"error": line.raised}
            )
        handler(line)
        num_free = line.free[0] + self._num_late
        shown = StoreObservation(self.explained.entries(), num_free, None, line.free_ids)
        if self._shows_pool:
            self.explained.compare(shown, not self._written, self.store.context)
        else:
            self.explained.compare_count(num_free, not self._written, self.store.context)
        self.coverage["pool full"] += not num_free

    # Pages ----------------------------------------------------------------------------------------------------------

    def _transfer(self, key: int, slot: int, *, is_load: bool) -> Transfer:
        owner = self.explained.new_owner()
        one = Transfer(next(self.new_numbers), 0, is_load, owner, [key], [slot])
        self.explained.begin(one, self.store.context)
        return one

    def _over(self, one: Transfer, *, has_failed: bool = False) -> None:
        one.failed = (0,) if has_failed else ()
        self.explained.land(one, self.store.context)
        self.explained.end(one, self.store.context)

    def _require_page(self, slot: int) -> None:
        if not 0 <= slot < self.explained.num_slots:
            sentence = f"page {slot} is none of $expected"
            raise Finding("no-use-after-free", sentence, call=self.store.context, expected=self.explained.num_slots)

    def _take(self, slot: int) -> None:
        """A request has the page: it must have been free."""
        self._require_page(slot)
        self._num_names += 1
        self._written[slot] = self._transfer(-self._num_names, slot, is_load=False)

    def _key_of(self, slot: int) -> int | None:
        number = self.explained.state.key[slot]
        return None if number == NONE else self.explained.keys[number]

    def _require_rest(self) -> None:
        """Nobody has a lock: then there is no request, and no page is being written."""
        if self._has_tree and not self._num_locks and self._written:
            pages = sorted(self._written)
            sentence, values = (
                "no request has a lock, and $pages are neither free nor in the tree",
                {"pages": count(len(pages), "page")},
            )
            shown = pages[:20]
            raise Finding(
                "no-leak-at-rest", sentence, call=self.store.context, observed=shown, blocks=pages, values=values
            )

    # Calls of the pool ----------------------------------------------------------------------------------------------

    def on_alloc(self, line: RecordedCall) -> None:
        """Judge pages that are taken: they were free. A refusal means that too few are free."""
        for slot in line.slots:
            self._take(slot)
        needed = line.num_tokens // self._page
        num_free = self.explained.num_slots - self.explained.num_used() - self._num_late
        if not line.answer and 0 < needed <= num_free:
            sentence = "$observed pages are needed, $expected are free, and the pool refused"
            raise Finding("refusal-needed", sentence, call=self.store.context, expected=num_free, observed=needed)
        self.coverage["refused"] += not line.answer

    on_alloc_extend = on_alloc_decode = on_alloc

    def on_free(self, line: RecordedCall) -> None:
        """Judge pages that are given back: by a request its own, by an eviction those of the tree without a lock."""
        is_eviction = line.group in EVICTIONS
        for slot in line.slots:
            self._require_page(slot)
            key, one = self._key_of(slot), self._written.get(slot)
            if key is None:
                sentence = f"page {slot} is given back, and it is free"
                raise Finding("no-double-free", sentence, call=self.store.context, blocks=[slot])
            if is_eviction and one is None:
                self.explained.evict(key, self.store.context)
                self._before.pop(key, None)
            elif one is not None and not is_eviction:
                del self._written[slot]
                self._over(one, has_failed=True)
            else:
                whose = "a request is writing it" if is_eviction else f"the tree has it for key {key}"
                who = "evicted" if is_eviction else "given back"
                sentence = f"page {slot} is {who}, and {whose}"
                raise Finding("no-use-after-free", sentence, call=self.store.context, blocks=[slot])
        if not line.answer:
            self._num_late += len(line.slots)

    on_free_segment = on_free_page_ids = on_free

    def on_free_group_end(self, line: RecordedCall) -> None:
        """Judge the end of a group: all its pages are free."""
        self._num_late = 0

    def on_clear(self, line: RecordedCall) -> None:
        """Judge a pool that is emptied: every page is free."""
        if self._before:
            raise Unjudged("the program empties the pool while the tree has pages")
        for one in self._written.values():
            self._over(one, has_failed=True)
        self._written.clear()
        self._num_late = 0

    # Calls of the tree ----------------------------------------------------------------------------------------------

    def on_match_prefix(self, line: RecordedCall) -> None:
        """Judge a look-up: what it finds is in the tree, and the next page is not."""
        self._require_rest()
        found, rest = (line.keys[:1], line.keys[1:]) if line.num_hit else ([], line.keys)
        for key in found:
            self.explained.promise(key, self.store.context)
            self.coverage["hit"] += 1
            for slot in line.slots:
                self._require_slot(key, slot)
        for key in rest:
            if self.explained.has(key):
                sentence = f"$pages are found, and the next, key {key}, is there too"
                values = {"pages": count(line.num_hit, "page")}
                raise Finding("hit-found", sentence, call=self.store.context, values=values)

    def _require_slot(self, key: int, slot: int) -> None:
        expected = self.explained.slot_of(key)
        if slot != expected:
            sentence = f"key {key} is in page $expected, and the request has page $observed"
            raise Finding("arrived-whole", sentence, call=self.store.context, expected=expected, observed=slot)

    def on_insert(self, line: RecordedCall) -> None:
        """Judge pages that the tree gets: it keeps those that it has, and takes the others from the request."""
        if len(line.keys) + line.num_hit != len(line.slots):
            sentence = f"the prompt has {line.num_hit + len(line.keys)} pages, and the request gives {len(line.slots)}"
            raise Finding("lists-agree", sentence, call=self.store.context)
        explained, before = self.explained, None
        there = [explained.has(key) for key in line.keys]
        num_there = there.index(False) if False in there else len(there)
        expected = (line.num_hit + num_there) * self._page
        if line.num_tokens != expected:
            property = "hit-found" if line.num_tokens < expected else "hit-written"
            sentence = "$expected tokens were in the tree, and it says $observed"
            raise Finding(property, sentence, call=self.store.context, expected=expected, observed=line.num_tokens)
        if line.lookahead:
            for key, slot in zip(reversed(self._path(line)), line.slots, strict=False):
                self._require_slot(key, slot)
        for key, slot, is_there in zip(line.keys, line.slots[line.num_hit :], there, strict=True):
            if not is_there:
                self._adopt(key, slot, before)
            elif explained.slot_of(key) != slot:
                self.coverage["a page of which the tree has another copy"] += 1
            before = key

    def _adopt(self, key: int, slot: int, before: int | None) -> None:
        """The tree takes a page of a request."""
        self._require_page(slot)
        one = self._written.pop(slot, None)
        if one is None:
            sentence = f"the tree takes page {slot} for key {key}; {self.explained.described(slot)}"
            raise Finding("no-use-after-free", sentence, call=self.store.context, blocks=[slot])
        self._over(one, has_failed=True)
        self._over(self._transfer(key, slot, is_load=False))
        self._before[key] = before

    def _path(self, line: RecordedCall) -> list[int]:
        """The keys from the end of the node that the line names to the root."""
        path, key = list[int](), line.keys[0] if line.keys else None
        while key is not None:
            if key not in self._before:
                sentence = f"the node ends with key {key}, which is not in the tree"
                raise Finding("hit-written", sentence, call=self.store.context)
            path.append(key)
            key = self._before[key]
        return path

    def on_path_device_indices(self, line: RecordedCall) -> None:
        """Judge the pages that a request gets: those of the path."""
        path = self._path(line)
        if len(path) != len(line.slots):
            sentence = "the path has $expected pages, and the answer has $observed"
            raise Finding(
                "arrived-whole", sentence, call=self.store.context, expected=len(path), observed=len(line.slots)
            )
        for key, slot in zip(reversed(path), line.slots, strict=True):
            self._require_slot(key, slot)

    def on_inc_lock_ref(self, line: RecordedCall) -> None:
        """Judge a lock: every page of the path is there, and stays."""
        self._num_locks += 1
        for key in self._path(line):
            self._locks[key] += 1
            if self._locks[key] == 1:
                self._loads[key] = self._transfer(key, self.explained.slot_of(key), is_load=True)
            else:
                self.coverage["two loads of a key"] += 1

    def on_dec_lock_ref(self, line: RecordedCall) -> None:
        """Judge the end of a lock: somebody has it."""
        path = self._path(line)
        free = [key for key in path if not self._locks[key]]
        if free or not self._num_locks:
            whose = f"key {free[0]}" if free else "the root"
            sentence = "nobody has a lock on $node, and one ends"
            raise Finding("pin-own", sentence, call=self.store.context, values={"node": whose})
        self._num_locks -= 1
        for key in path:
            self._locks[key] -= 1
            if not self._locks[key]:
                del self._locks[key]
                self._over(self._loads.pop(key))

    def on_reset(self, line: RecordedCall) -> None:
        """Judge a reset: the tree has nothing, and its pages are free when the pool is emptied."""
        if self._num_locks:
            raise Unjudged("the program resets the tree while requests have locks")
        for key, slot in self.explained.entries().items():
            if key in self._before and slot != NO_SLOT:
                self.explained.evict(key, self.store.context)
                self._take(slot)
        self._before.clear()
        self.coverage["reset"] += 1
