"""Record SGLang's pool of pages and the prefix cache over it, releases 0.5.9 to 0.5.23.

A slot is a page: its number is one less than SGLang's, whose page 0 is for padding. A key is a page of a prompt
together with everything before it, stored as a keyed digest. The recorder follows the calls of two objects: the tree
(look-ups, inserts, locks, evictions), and the pool below it (pages taken and given back). A page that the tree gives
back has the name of the tree's call in the field `group`.

A call copies the tokens and the page ids that it names: of a look-up, those of the pages found and of the next one; of
an insert, the whole prompt. `raw_lines` makes the line from them.
"""

from array import array
from collections.abc import Callable
from typing import Any

from kvproof.check.recording.format import SCHEMA_VERSION, SGLANG, STOPPED, Header, RecordedCall
from kvproof.check.recording.recorder import Recorder, text_of
from kvproof.check.recording.recording_file import RecordingRefused
from kvproof.check.recording.sglang.raw_lines import NEW, ONCE, PAGES, SLOTS, RadixCall
from kvproof.check.recording.sglang.waiting_lines import ALL, WaitingLines

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
NO_NAMESPACE = repr((None, None))
LAST = slice(-1, None)


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
        self._is_in_pool = False
        super().__init__(*arguments)

    def follow(self) -> None:
        for name in OF_POOL:
            if hasattr(self._pool, name):
                self.covered.put(self._pool, name, self._recorded_in_pool(name, getattr(self._pool, name)))

    def header(self) -> Header:
        """The configuration, from the tree and its pool. Raises RecordingRefused for what no judge explains."""
        cache, kind = self.manager, type(self.manager).__name__
        pool: Any = getattr(cache, "token_to_kv_pool_allocator", None)
        self._pool = pool
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
        self._each_page = ALL if self._page == 1 else slice(None, None, self._page)  # a slot of each
        self._is_tree = kind != "ChunkCache" and not cache.disable
        self._within = ""  # the call of the tree that is under way
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

    def free(self) -> tuple[int, int]:
        return self._pool.available_size() // self._page, 0

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """The free pages; to read them waits for the device."""
        pool = self._pool
        lists = [pool.free_pages, getattr(pool, "release_pages", None), *getattr(pool, "staged_pages", ())]
        return [], [one - 1 for tensor in lists if tensor is not None for one in tensor.tolist()]

    def line_sink(self) -> Callable[[Any], object]:
        """Lines wait for the numbers of those before them."""
        self._lines = WaitingLines(self._sink.put)
        return self._lines.add

    # Lines ----------------------------------------------------------------------------------------------------------

    def _end(self, line: RecordedCall, waits: bool = True) -> None:
        try:
            self._lines.write_all()
        except Exception as error:
            self._forget_waiting()
            line = RecordedCall(self.num_lines + 1, STOPPED, answer=text_of(error))
        super()._end(line, waits)

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
            if not self.is_on or self._is_in_pool:
                return inner(*arguments, **options)
            answer, raised, is_inside = None, "", self._is_inside
            self._is_in_pool = True
            try:
                answer = inner(*arguments, **options)
            except Exception as error:
                raised = text_of(error)
                raise
            finally:
                self._write_line(name, describe, answer, raised, arguments, options)
                self._is_in_pool, self._is_inside = False, is_inside
            return answer

        return recorded

    # Prompts and nodes ----------------------------------------------------------------------------------------------

    def _call_of_prompt(self, key: Any, num_pages: int) -> RadixCall:
        """A line with the first pages of a prompt, as copies of its tokens."""
        call = RadixCall()
        if num_pages:
            tokens, num_tokens = key.token_ids, num_pages * self._page
            if type(tokens) is array:
                self._lines.add_tokens(call, memoryview(tokens).cast("B")[: num_tokens * tokens.itemsize])
            else:
                call.tokens = tokens if num_tokens == len(tokens) and type(tokens) is list else tokens[:num_tokens]
        names = (key.extra_key, getattr(key, "cache_salt", None))
        call.namespace = NO_NAMESPACE if names == (None, None) else repr(names)
        return call

    def _name_of(self, node: Any) -> int | None:
        """The number of a node; None for the root."""
        root = self.manager.root_node
        name: int = getattr(node, "id", node)
        return None if name == getattr(root, "id", root) else name

    def _of_node(self, node: Any) -> RadixCall:
        return RadixCall(node=self._name_of(node))

    # Calls of the tree ----------------------------------------------------------------------------------------------

    def on_match_prefix(self, answer: Any, params: Any) -> RadixCall | None:
        """The line of a look-up. num_hit: the pages found. keys: the last of them, and the next, which was not found.

        slots: the last page, if the release answers with pages.
        """
        if not self._is_tree or answer is None:
            return None
        size, key = self._page, params.key
        pages = getattr(answer, "device_indices", None)
        num_found = (answer.device_prefix_len if pages is None else len(pages)) // size
        call = self._call_of_prompt(key, min(num_found + 1, len(key) // size))
        call.num_hit = num_found
        if num_found:
            call.node = self._name_of(answer.last_device_node)
            if pages is not None:
                self._lines.fill(call, pages, SLOTS, LAST)
        return call

    def on_insert(self, answer: Any, params: Any) -> RadixCall | None:
        """The line of pages that the tree gets. num_tokens: those that were there.

        slots: of each page. keys: of each page but the first `num_hit`. lookahead: how many of the first pages the
        request has from the tree. It is 0 if that is said of all: SGLang then only divides a node, and the pages may be
        old ones.
        """
        if not self._is_tree or answer is None:
            return None
        size, num_pages = self._page, len(params.key) // self._page
        num_own = min(getattr(params, "prev_prefix_len", 0) // size, num_pages)
        call = self._call_of_prompt(params.key, num_pages)
        call.num_hit, call.num_tokens = max(0, num_own - 1), answer.prefix_len
        call.lookahead = num_own if num_own < num_pages else 0
        self._lines.fill(call, params.value, SLOTS, slice(0, num_pages * size, size))
        if num_pages and (node := getattr(answer, "last_device_node", None)) is not None:
            call.node = self._name_of(node)
        return call

    def on_path_device_indices(self, answer: Any, node: Any) -> RadixCall | None:
        """The line of a request that gets the pages of a path."""
        if not self._is_tree or answer is None:
            return None
        call = self._of_node(node)
        self._lines.fill(call, answer, SLOTS, self._each_page)
        return call

    def on_inc_lock_ref(self, answer: Any, node: Any, *arguments: Any, **options: Any) -> RadixCall | None:
        """The line of a lock on a path."""
        return self._of_node(node) if self._is_tree else None

    on_dec_lock_ref = on_inc_lock_ref

    def on_evict(self, answer: Any, *arguments: Any, **options: Any) -> None:
        """No line: each page that goes has one."""

    on_evict_for_alloc = on_evict

    def on_reset(self, answer: Any) -> RadixCall:
        """The line of a reset: the tree has nothing any more. The pool is cleared by another call."""
        return RadixCall()

    def on_init_hicache(self, answer: Any, *arguments: Any, **options: Any) -> RadixCall:
        """The line of a tier below the device."""
        return RadixCall(unjudged=["tiers below the device"])

    on_init_cache_linker = on_init_hicache

    # Calls of the pool ----------------------------------------------------------------------------------------------

    def on_alloc(self, answer: Any, need_size: int = 0, *arguments: Any, **options: Any) -> RadixCall:
        """The line of pages that are taken, or of a refusal. num_tokens: how many tokens the program asks for."""
        call = self.on_alloc_extend(answer)
        call.num_tokens = need_size
        return call

    def on_alloc_extend(self, answer: Any, *arguments: Any, **options: Any) -> RadixCall:
        """The line of pages that a step takes, or of a refusal."""
        call = RadixCall(answer=answer is not None)
        if answer is not None:
            self._lines.fill(call, answer, NEW)
        return call

    on_alloc_decode = on_alloc_extend

    def _given_back(self, tensor: Any, what: str, part: slice = ALL) -> RadixCall | None:
        """The line of pages that are given back. answer: whether at once, and not at the end of a group."""
        if not tensor.numel():
            return None
        pool = self._pool
        is_now: bool = getattr(pool, "is_not_in_free_group", pool.free_group is None)  # the former up to 0.5.18
        call = RadixCall(group=self._within, answer=is_now)
        self._lines.fill(call, tensor, what, part)
        return call

    def on_free(self, answer: Any, free_index: Any) -> RadixCall | None:
        """The line of slots that are given back, with their pages."""
        return self._given_back(free_index, SLOTS if self._page == 1 else ONCE)

    def on_free_segment(self, answer: Any, free_index: Any, *, start_pos: int) -> RadixCall | None:
        """The line of slots that follow each other in whole pages."""
        return self._given_back(free_index, SLOTS, self._each_page)

    def on_free_page_ids(self, answer: Any, page_ids: Any) -> RadixCall | None:
        """The line of pages that are given back."""
        return self._given_back(page_ids, PAGES)

    def on_free_group_end(self, answer: Any) -> RadixCall:
        """The line of the end of a group: its pages are free now."""
        return RadixCall()

    def on_clear(self, answer: Any) -> RadixCall:
        """The line of a pool that is emptied."""
        return RadixCall()
