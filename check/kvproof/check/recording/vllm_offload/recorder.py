"""Record vLLM's offloading manager for host memory, releases 0.11 to 0.33.

The slots are the blocks (chunks, from 0.30 on) of host memory. A key is stored as a keyed digest of the hash that vLLM
gives to a block; `raw_lines` makes it. The recorder asks the manager for nothing but its free slots: a call and its
answer say the rest.
"""

from collections.abc import Callable, Iterable
from typing import Any

from kvproof.check.protocol.store import HIT, MISS
from kvproof.check.recording.format import SCHEMA_VERSION, VLLM_OFFLOAD, Header
from kvproof.check.recording.recorder import Recorder
from kvproof.check.recording.recording_file import RecordingRefused
from kvproof.check.recording.vllm_offload.raw_lines import OffloadCall
from kvproof.check.subjects.vllm.offload import ANSWERS, OffloadReader

KINDS = ("CPUOffloadingManager", "LRUOffloadingManager", "ARCOffloadingManager")


class OffloadRecorder(Recorder):
    """Records a manager of one of `KINDS`."""

    calls = (
        "lookup",
        "touch",
        "prepare_load",
        "complete_load",
        "prepare_store",
        "complete_store",
        "on_request_finished",
        "reset_cache",
    )

    def header(self) -> Header:
        """The configuration, from the manager. Raises RecordingRefused for another class."""
        manager, kind = self.manager, type(self.manager).__name__
        if kind not in KINDS:
            raise RecordingRefused(f"{kind} is not recorded; of vLLM's offloading, these are: {', '.join(KINDS)}")
        self._reader = OffloadReader(manager)
        free = self.free()
        return Header(
            kvproof_recording=SCHEMA_VERSION,
            interface=VLLM_OFFLOAD,
            manager=f"{type(manager).__module__}.{kind}",
            block_size=1,
            num_gpu_blocks=self._reader.num_slots,
            free=free,
            is_fresh=free[0] == self._reader.num_slots,
            caching=True,
            refuses_exactly=getattr(manager, "store_threshold", 1) < 2,
        )

    def free(self) -> tuple[int, int]:
        return self._reader.num_free(), 0

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """The free slots; the counts of the entries are in the field `entries`."""
        return [], self._reader.free_slots()

    def show_pool(self, described: OffloadCall) -> None:
        super().show_pool(described)
        described.entries = list(self._reader.entries())

    # Calls ----------------------------------------------------------------------------------------------------------

    def _recorded(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        recorded = super()._recorded(name, inner)

        def with_lists(*arguments: Any, **options: Any) -> Any:
            """Callers may pass an iterator of keys, which can be read only once."""
            lists = [list(one) if hasattr(one, "__next__") else one for one in arguments]
            if options:
                options = {key: list(one) if hasattr(one, "__next__") else one for key, one in options.items()}
            return recorded(*lists, **options)

        return with_lists

    def _line(self, keys: Iterable[bytes] = (), req_context: Any = None, block_hashes: Any = None) -> OffloadCall:
        """A line with the keys and the request of a call. block_hashes: the keys, before 0.20."""
        group = str(getattr(req_context, "req_id", ""))
        named = keys if block_hashes is None else block_hashes
        return OffloadCall(group=group, keys=named if type(named) is list else list(named))

    def on_lookup(self, answer: Any, key: Any = None, req_context: Any = None, block_hashes: Any = ()) -> OffloadCall:
        """The line of a look-up: of one key, or of a prefix (before 0.20), of which it found so many keys."""
        if isinstance(key, bytes):
            line = self._line([key], req_context)
            line.found = [ANSWERS[getattr(answer, "name", answer)]]
            return line
        line = self._line(dict.fromkeys(key or block_hashes))
        num_found = 0 if answer is None else answer
        found = [HIT] * num_found + ([] if answer is None else [MISS])
        line.found = found[: len(line.keys)]
        line.keys = line.keys[: len(found)]
        return line

    def on_touch(self, answer: Any, *arguments: Any, **options: Any) -> OffloadCall:
        """The line of a use."""
        return self._line(*arguments, **options)

    def on_prepare_load(self, answer: Any, *arguments: Any, **options: Any) -> OffloadCall:
        """The line of a load that begins, with its slots."""
        line = self._line(*arguments, **options)
        line.slots = [] if answer is None else answer.block_ids.tolist()
        return line

    on_complete_load = on_touch

    def on_prepare_store(self, answer: Any, *arguments: Any, **options: Any) -> OffloadCall:
        """The line of a store that begins or is refused: what it writes to which slots, and what it evicted."""
        line = self._line(*arguments, **options)
        line.answer = answer is not None
        if answer is not None:
            is_new = hasattr(answer, "keys_to_store")
            line.taken = list(answer.keys_to_store if is_new else answer.block_hashes_to_store)
            line.evicted = list(answer.evicted_keys if is_new else answer.block_hashes_evicted)
            line.slots = answer.store_spec.block_ids.tolist()
        return line

    def on_complete_store(
        self, answer: Any, *arguments: Any, success: bool | None = None, **options: Any
    ) -> OffloadCall:
        """The line of a store that has ended, and whether it was written."""
        given = [one for one in arguments if isinstance(one, bool)]
        line = self._line(*[one for one in arguments if not isinstance(one, bool)], **options)
        line.answer = given[0] if given else success is not False
        return line

    def on_on_request_finished(self, answer: Any, req_context: Any) -> OffloadCall:
        """The line of a request that is over."""
        return self._line((), req_context)

    def on_reset_cache(self, answer: Any) -> OffloadCall:
        """The line of a reset."""
        return self._line()
