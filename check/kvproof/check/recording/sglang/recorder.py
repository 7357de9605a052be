"""Record SGLang's pool of pages and the prefix cache over it, releases 0.5.9 to 0.5.23.

A slot is a page: its number is one less than SGLang's, whose page 0 is for padding. A key is a page of a prompt
together with everything before it, stored as a keyed digest. The recorder follows the calls of two objects: the tree
(look-ups, inserts, locks, evictions), and the pool below it (pages taken and given back). A page that the tree gives
back has the name of the tree's call in the field `group`.

A lock names a node of the tree. The path from the root to the end of a node never changes, so a node is recorded as the
key of its last page, which is known from the look-up or the insert that returned the node.

The time of a call grows with the pages that it names: each has a digest. Of a look-up, these are the pages found and
the next one; of an insert, the whole prompt.
"""

from array import array
from collections.abc import Callable
from os import getpid
from typing import Any

from kvproof.check.recording.format import SCHEMA_VERSION, SGLANG, Header, RecordedCall
from kvproof.check.recording.recorder import POSITIVE, Recorder, RecordingRefused
from kvproof.check.recording.sglang.waiting_lines import WaitingLines

CACHES = ("RadixCache", "UnifiedRadixCache", "ChunkCache")
POOLS = ("TokenToKVPoolAllocator", "PagedTokenToKVPoolAllocator")
OF_POOL = (
    "alloc",
    "alloc_extend",
    "alloc_decode",
    "free",
    "free_segment",
    "free_page_ids",
    "free_group_end",
    "clear",
)
NUM_NODES_MAX = 1 << 16


class RadixRecorder(Recorder):
    """Records one of `CACHES`, and its pool."""

    calls = (
        "match_prefix",
        "insert",
        "path_device_indices",
        "inc_lock_ref",
        "dec_lock_ref",
        "evict",
        "evict_for_alloc",
        "reset",
        "init_hicache",
        "init_cache_linker",
    )

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._is_in_pool = False
        self._followed = [name for name in OF_POOL if hasattr(self._pool, name)]
        for name in self._followed:
            setattr(self._pool, name, self._recorded_in_pool(name, getattr(self._pool, name)))

    def header(self) -> Header:
        """The configuration, from the tree and its pool. Raises RecordingRefused for what no judge explains."""
        cache, kind = self.manager, type(self.manager).__name__
        self._pool = pool = cache.token_to_kv_pool_allocator
        if kind not in CACHES or type(pool).__name__ not in POOLS:
            what = f"{kind} over {type(pool).__name__}"
            raise RecordingRefused(f"{what} is not recorded; of SGLang's caches, these are: {', '.join(CACHES)}")
        if getattr(cache, "is_eagle", False) or getattr(getattr(cache, "tree_core", None), "is_eagle", False):
            raise RecordingRefused(f"{kind} has keys of pairs of tokens (EAGLE), which are not recorded")
        components = [getattr(one, "name", str(one)) for one in getattr(cache, "tree_components", ())]
        if components not in ([], ["FULL"]) or getattr(cache, "cache_controller", None) is not None:
            raise RecordingRefused(f"{kind} is only recorded with full attention and without a host tier")
        self._page = pool.page_size
        self._num_pages = pool.size // self._page
        self._is_tree = kind != "ChunkCache" and not cache.disable
        self._within = ""  # the call of the tree that is under way
        self._ends: dict[Any, int] = {}  # of the nodes that were named last: the keys of their last pages
        self._locked: dict[Any, list[int]] = {}  # of nodes: the key of the last page, and the number of locks
        self._lines = WaitingLines(super()._put)
        free = self.free()
        return Header(
            kvproof_recording=SCHEMA_VERSION,
            interface=SGLANG,
            manager=f"{type(cache).__module__}.{kind}",
            block_size=self._page,
            num_gpu_blocks=self._num_pages,
            free=free,
            is_fresh=free[0] == self._num_pages,
            caching=self._is_tree,
        )

    def close(self) -> None:
        if getpid() == self._process:
            for name in self._followed:
                vars(self._pool).pop(name, None)
            self._followed = []
        super().close()

    def free(self) -> tuple[int, int]:
        return self._pool.available_size() // self._page, 0

    def reserved(self) -> list[int]:
        """There are none: page 0 is not counted."""
        return []

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """The free pages; to read them waits for the device."""
        pool = self._pool
        lists = [pool.free_pages, getattr(pool, "release_pages", None), *getattr(pool, "staged_pages", ())]
        return [], [one - 1 for tensor in lists if tensor is not None for one in tensor.tolist()]

    # Lines ----------------------------------------------------------------------------------------------------------

    def _put(self, line: RecordedCall | Header) -> None:
        self._lines.add(line)

    def _end(self, line: RecordedCall) -> None:
        try:
            self._lines.write_all()
        except Exception as error:
            self._forget_waiting()
            line = RecordedCall(self.num_lines + 1, "recording stopped", answer=f"{type(error).__name__}: {error}")
        super()._end(line)

    def _stop(self, why: str) -> None:
        self._forget_waiting()
        super()._stop(why)

    def _forget_waiting(self) -> None:
        self.num_lines -= len(self._lines)
        self._lines.forget()

    def _recorded(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def within(*arguments: Any, **options: Any) -> Any:
            self._within = name
            try:
                return inner(*arguments, **options)
            finally:
                self._within = ""

        return super()._recorded(name, within)

    def _recorded_in_pool(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        """A call of the pool is recorded also if the tree makes it, but not if the pool itself does."""
        describe = getattr(self, f"on_{name}")

        def recorded(*arguments: Any, **options: Any) -> Any:
            if not self.is_on or self._is_in_pool or getpid() != self._process:
                return inner(*arguments, **options)
            answer, raised, is_inside = None, "", self._is_inside
            self._is_in_pool = True
            try:
                answer = inner(*arguments, **options)
            except Exception as error:
                raised = f"{type(error).__name__}: {error}"[:300]
                raise
            finally:
                self._write_line(name, describe, answer, raised, arguments, options)
                self._is_in_pool, self._is_inside = False, is_inside
            return answer

        return recorded

    # Keys and nodes -------------------------------------------------------------------------------------------------

    def _keys(self, key: Any, num_pages: int) -> list[int]:
        """The first pages of a prompt, each as a digest of itself and of everything before it."""
        size, tokens = self._page, key.token_ids
        if not isinstance(tokens, array):
            tokens = array("q", tokens[: num_pages * size])
        digest, last = self._digest, self._digest(repr((key.extra_key, getattr(key, "cache_salt", None))).encode())
        view, keys = memoryview(tokens), []
        for start in range(0, num_pages * size, size):
            last = digest(last + view[start : start + size])
            keys.append(int.from_bytes(last, "big") & POSITIVE)
        return keys

    def _remember(self, node: Any, end: int) -> None:
        name = getattr(node, "id", node)
        self._ends.pop(name, None)
        self._ends[name] = end
        if len(self._ends) > NUM_NODES_MAX:
            del self._ends[next(iter(self._ends))]

    def _end_of(self, node: Any) -> list[int]:
        """The key of the last page of a node; of the root, none."""
        root = self.manager.root_node
        name = getattr(node, "id", node)
        if name == getattr(root, "id", root):
            return []
        if name in self._locked:
            return [self._locked[name][0]]
        if name not in self._ends:
            raise LookupError(f"no look-up and no insert returned node {name}")
        return [self._ends[name]]

    # Calls of the tree ----------------------------------------------------------------------------------------------

    def on_match_prefix(self, answer: Any, params: Any) -> RecordedCall | None:
        """The line of a look-up. num_hit: the pages found. keys: the last of them, and the next, which was not found.

        slots: the last page, if the release answers with pages.
        """
        if not self._is_tree or answer is None:
            return None
        size, key = self._page, params.key
        pages = getattr(answer, "device_indices", None)
        num_found = (answer.device_prefix_len if pages is None else len(pages)) // size
        keys = self._keys(key, min(num_found + 1, len(key) // size))
        if num_found:
            self._remember(answer.last_device_node, keys[num_found - 1])
        line = RecordedCall(0, "", num_hit=num_found, keys=keys[max(0, num_found - 1) :])
        if num_found and pages is not None:
            self._lines.fill(line, pages[-1:], 1, self._pages)
        return line

    def on_insert(self, answer: Any, params: Any) -> RecordedCall | None:
        """The line of pages that the tree gets. num_tokens: those that were there.

        slots: of each page. keys: of each page but the first `num_hit`. lookahead: how many of the first pages the
        request has from the tree. It is 0 if that is said of all: SGLang then only divides a node, and the pages may be
        old ones.
        """
        if not self._is_tree or answer is None:
            return None
        size, num_pages = self._page, len(params.key) // self._page
        keys = self._keys(params.key, num_pages)
        num_own = min(getattr(params, "prev_prefix_len", 0) // size, num_pages)
        first = max(0, num_own - 1)
        line = RecordedCall(0, "", num_hit=first, num_tokens=answer.prefix_len, keys=keys[first:])
        line.lookahead = num_own if num_own < num_pages else 0
        self._lines.fill(line, params.value[: num_pages * size], size, self._pages)
        if keys and getattr(answer, "last_device_node", None) is not None:
            self._remember(answer.last_device_node, keys[-1])
        return line

    def on_path_device_indices(self, answer: Any, node: Any) -> RecordedCall | None:
        """The line of a request that gets the pages of a path."""
        if not self._is_tree or answer is None:
            return None
        line = RecordedCall(0, "", keys=self._end_of(node))
        self._lines.fill(line, answer, self._page, self._pages)
        return line

    def on_inc_lock_ref(self, answer: Any, node: Any, *arguments: Any, **options: Any) -> RecordedCall | None:
        """The line of a lock on a path."""
        if not self._is_tree:
            return None
        line = RecordedCall(0, "", keys=self._end_of(node))
        if line.keys:
            self._locked.setdefault(getattr(node, "id", node), [line.keys[0], 0])[1] += 1
        return line

    def on_dec_lock_ref(self, answer: Any, node: Any, *arguments: Any, **options: Any) -> RecordedCall | None:
        """The line of the end of a lock."""
        if not self._is_tree:
            return None
        line, name = RecordedCall(0, "", keys=self._end_of(node)), getattr(node, "id", node)
        if name in self._locked:
            self._locked[name][1] -= 1
            if not self._locked[name][1]:
                self._remember(node, self._locked.pop(name)[0])
        return line

    def on_evict(self, answer: Any, *arguments: Any, **options: Any) -> None:
        """No line: each page that goes has one."""

    on_evict_for_alloc = on_evict

    def on_reset(self, answer: Any) -> RecordedCall:
        """The line of a reset: the tree has nothing any more. The pool is cleared by another call."""
        self._ends.clear()
        self._locked.clear()
        return RecordedCall(0, "")

    def on_init_hicache(self, answer: Any, *arguments: Any, **options: Any) -> RecordedCall:
        """The line of a tier below the device."""
        return RecordedCall(0, "", unjudged=["tiers below the device"])

    on_init_cache_linker = on_init_hicache

    # Calls of the pool ----------------------------------------------------------------------------------------------

    def _pages(self, slots: list[int]) -> list[int]:
        size = self._page
        return [slot // size - 1 for slot in slots]

    def _new_pages(self, slots: list[int]) -> list[int]:
        """The pages that begin with one of these slots: those that a request has got."""
        size = self._page
        return [slot // size - 1 for slot in slots if slot % size == 0]

    def _pages_once(self, slots: list[int]) -> list[int]:
        return list(dict.fromkeys(self._pages(slots)))

    def on_alloc(self, answer: Any, need_size: int = 0, *arguments: Any, **options: Any) -> RecordedCall:
        """The line of pages that are taken, or of a refusal. num_tokens: how many tokens the program asks for."""
        line = RecordedCall(0, "", answer=answer is not None, num_tokens=need_size)
        if answer is not None:
            self._lines.fill(line, answer, 1, self._new_pages)
        return line

    def on_alloc_extend(self, answer: Any, *arguments: Any, **options: Any) -> RecordedCall:
        """The line of pages that a step takes, or of a refusal."""
        return self.on_alloc(answer)

    on_alloc_decode = on_alloc_extend

    def _given_back(self, tensor: Any, step: int, pages_of: Callable[[list[int]], list[int]]) -> RecordedCall | None:
        """The line of pages that are given back. answer: whether at once, and not at the end of a group."""
        if not tensor.numel():
            return None
        pool = self._pool
        is_now: bool = getattr(pool, "is_not_in_free_group", pool.free_group is None)  # the former up to 0.5.18
        line = RecordedCall(0, "", group=self._within, answer=is_now)
        self._lines.fill(line, tensor, step, pages_of)
        return line

    def on_free(self, answer: Any, free_index: Any) -> RecordedCall | None:
        """The line of slots that are given back, with their pages."""
        return self._given_back(free_index, 1, self._pages if self._page == 1 else self._pages_once)

    def on_free_segment(self, answer: Any, free_index: Any, *, start_pos: int) -> RecordedCall | None:
        """The line of slots that follow each other in whole pages."""
        return self._given_back(free_index, self._page, self._pages)

    def on_free_page_ids(self, answer: Any, page_ids: Any) -> RecordedCall | None:
        """The line of pages that are given back."""
        return self._given_back(page_ids, 1, lambda ids: [one - 1 for one in ids])

    def on_free_group_end(self, answer: Any) -> RecordedCall:
        """The line of the end of a group: its pages are free now."""
        return RecordedCall(0, "")

    def on_clear(self, answer: Any) -> RecordedCall:
        """The line of a pool that is emptied."""
        return RecordedCall(0, "")
