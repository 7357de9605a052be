"""Record LMCache's L1 manager, from release 0.5.6 on.

A slot is a memory object that is in use. The recorder follows the objects that the manager takes from its memory and
gives back to it, and an object has the number that its address got when it was taken. So memory that is given to two
keys has one slot, and memory that is lost or given back twice shows in the count of free slots. The number of slots is
a bound: objects may differ in size, so the recording does not say when the memory is full.

Threads. The server calls the manager from several threads, and the manager has a lock of its own around each call. The
recorder takes another lock around the call and its line. It takes this lock first and releases it last, so two recorded
calls never overlap, and the order of the lines is the order in which the manager made the calls. To write the line
within the manager's own lock would be as true, but then the recorder would have to exchange that lock, for which a
thread may be waiting. The recorder's lock causes no deadlock: who waits for it does not hold the manager's lock, and a
call from within a call, as of a listener, is made by the thread that has both. The calls that do not take the manager's
lock (`touch_keys`, `is_key_evictable`, the figures) are not recorded, and take no lock.
"""

import threading
from collections.abc import Callable, Iterable
from itertools import compress
from operator import attrgetter, is_
from time import monotonic_ns
from typing import Any

from kvproof.check.recording.format import LMCACHE_L1, SCHEMA_VERSION, Header
from kvproof.check.recording.lmcache.raw_lines import NUM_OBJECTS_MAX, L1Call
from kvproof.check.recording.recorder import Recorder, text_of
from kvproof.check.recording.recording_file import RecordingRefused

SUCCESS, NO_MEMORY = "SUCCESS", "OUT_OF_MEMORY"
MICROSECONDS = 1_000_000
name_of = attrgetter("chunk_hash", "kv_rank", "object_group_id", "model_name", "cache_salt")
address_of = attrgetter("meta.address")


class L1Recorder(Recorder):
    """Records an `L1Manager`."""

    calls = (
        "reserve_write",
        "finish_write",
        "finish_write_and_delete",
        "finish_write_and_reserve_read",
        "reserve_read",
        "unsafe_read",
        "finish_read",
        "delete",
        "clear",
    )

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.RLock()
        with self._lock:
            super().__init__(*arguments)

    def follow(self) -> None:
        for name, follow in (("allocate", self._allocated), ("free", self._freed)):
            self.covered.put(self._memory, name, self._following(getattr(self._memory, name), follow))

    def header(self) -> Header:
        """The configuration, from that of the manager. Raises RecordingRefused before release 0.5.6."""
        manager = self.manager
        if not hasattr(manager, "finish_write_and_delete") or not hasattr(manager, "_memory_manager"):
            raise RecordingRefused(f"{type(manager).__name__} is not the L1 manager of LMCache 0.5.6 or newer")
        self._memory: Any = manager._memory_manager
        self._objects: dict[Any, Any] = manager._objects
        self._moves: list[tuple[bool, list[int]]] = []  # of objects, since the last line
        self._taken: list[Any] = []  # the objects of the last move, if they were taken
        self._began = self._num_before = 0  # of the call: when it began, and the objects then
        config = manager.config
        return Header(
            kvproof_recording=SCHEMA_VERSION,
            interface=LMCACHE_L1,
            manager=f"{type(manager).__module__}.{type(manager).__name__}",
            block_size=1,
            num_gpu_blocks=NUM_OBJECTS_MAX,
            free=(NUM_OBJECTS_MAX, 0),
            is_fresh=not self._objects and not manager._staging,
            caching=True,
            refuses_exactly=False,
            lease_us=(int(config.write_ttl_seconds * MICROSECONDS), int(config.read_ttl_seconds * MICROSECONDS)),
        )

    def close(self) -> None:
        with self._lock:
            super().close()

    def free(self) -> tuple[int, int]:
        return 0, 0  # `raw_lines` counts

    def pool(self) -> tuple[list[int] | None, list[int] | None]:
        """The entries are in the field `entries`; a lock does not say how often it is taken."""
        return [], None

    def show_pool(self, described: L1Call) -> None:
        super().show_pool(described)
        entries = [(name_of(key), one.memory_obj.meta.address, 0) for key, one in self._objects.items()]
        for key, by_tag in self.manager._staging.items():
            entries += [(name_of(key), one.memory_obj.meta.address, -1) for one in by_tag.values()]
        described.entries = entries

    # Memory ---------------------------------------------------------------------------------------------------------

    def _following(self, inner: Callable[..., Any], follow: Callable[[Any, Any], None]) -> Callable[..., Any]:
        def followed(*arguments: Any, **options: Any) -> Any:
            answer = inner(*arguments, **options)
            if self.is_on:
                try:
                    follow(answer, arguments)
                except Exception as error:
                    self._stop(text_of(error))
            return answer

        return followed

    def _allocated(self, answer: Any, arguments: Any) -> None:
        self._taken = answer[1]
        self._moves.append((True, list(map(address_of, self._taken))))

    def _freed(self, answer: Any, arguments: Any) -> None:
        self._taken = []
        self._moves.append((False, list(map(address_of, arguments[0]))))

    # Calls ----------------------------------------------------------------------------------------------------------

    def _recorded(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        recorded = super()._recorded(name, inner)

        def in_order(*arguments: Any, **options: Any) -> Any:
            """The call and its line, before the next call."""
            if not self.is_on:
                return inner(*arguments, **options)
            with self._lock:
                if not self._is_inside:
                    self._began, self._num_before = monotonic_ns(), len(self._objects)
                return recorded(*arguments, **options)

        return in_order

    def _line(self, keys: Iterable[Any]) -> L1Call:
        moves = self._moves
        if moves:
            self._moves = []
        return L1Call(at=(self._began, monotonic_ns()), keys=list(map(name_of, keys)), moves=moves)

    def _answered(self, answer: dict[Any, Any], keys: list[Any]) -> list[Any] | None:
        """The names of the keys in the answer, if they are not those of the call."""
        return None if list(answer) == keys else list(map(name_of, answer))

    def _with_errors(self, answer: Any, keys: list[Any], tag: str = "") -> L1Call:
        """The line of a call that answers an error for each key."""
        call = self._line(keys)
        call.group = tag
        if answer:
            call.answered = self._answered(answer, keys)
            call.has_succeeded = _has_succeeded(answer.values())
        return call

    def _with_objects(self, answer: Any, keys: list[Any], read_locks: int, tag: str = "") -> L1Call:
        """The line of a call that answers an error and an object for each key."""
        call = self._line(keys)
        call.group, call.num_seqs = tag, read_locks
        if answer:
            call.answered = self._answered(answer, keys)
            errors, objects = zip(*answer.values(), strict=True)
            call.has_succeeded = done = _has_succeeded(errors)
            if done is not None:
                objects = tuple(compress(objects, done))
            taken, self._taken = self._taken, []
            is_taken = call.moves and len(taken) == len(objects) and all(map(is_, taken, objects))
            call.addresses = None if is_taken else list(map(address_of, objects))
        return call

    def on_reserve_write(
        self, answer: Any, keys: list[Any], is_temporary: Any, layout_desc: Any, tag: str = ""
    ) -> L1Call:
        """The line of stores that begin. answer: whether there was memory for them."""
        call = self._with_objects(answer, keys, 0, tag)
        is_whole = call.has_succeeded is None or not answer
        call.answer = is_whole or all(error._name_ != NO_MEMORY for error, _ in answer.values())
        return call

    def on_finish_write(self, answer: Any, keys: list[Any], tag: str = "") -> L1Call:
        """The line of stores that have been written."""
        return self._with_errors(answer, keys, tag)

    on_finish_write_and_delete = on_finish_write

    def on_finish_write_and_reserve_read(
        self, answer: Any, keys: list[Any], read_locks: int = 1, tag: str = ""
    ) -> L1Call:
        """The line of stores that have been written, and are read from now on."""
        return self._with_objects(answer, keys, read_locks, tag)

    def on_reserve_read(self, answer: Any, keys: list[Any], read_locks: int = 1) -> L1Call:
        """The line of loads that begin."""
        return self._with_objects(answer, keys, read_locks)

    def on_unsafe_read(self, answer: Any, keys: list[Any]) -> L1Call:
        """The line of a read under a lock that was taken before."""
        return self._with_objects(answer, keys, 0)

    def on_finish_read(self, answer: Any, keys: list[Any], read_locks: int = 1) -> L1Call:
        """The line of loads that end. evicted: temporary objects that went."""
        call = self._with_errors(answer, keys)
        call.num_seqs = read_locks
        objects = self._objects
        if answer and len(objects) != self._num_before:
            call.is_gone = [error._name_ == SUCCESS and key not in objects for key, error in answer.items()]
            if not any(call.is_gone):
                call.is_gone = []
        return call

    def on_delete(self, answer: Any, keys: list[Any], force: bool = False) -> L1Call:
        """The line of an eviction. answer: whether it was by force."""
        call = self._with_errors(answer, keys)
        call.answer = force
        return call

    def on_clear(self, answer: Any, force: bool = False) -> L1Call:
        """The line of a reset. answer: whether it was by force. keys: of a gentle one, those that are left."""
        call = self._line(() if force else self._objects)
        call.answer = force
        return call


def _has_succeeded(errors: Iterable[Any]) -> list[bool] | None:
    """Of each key, whether its error says success; None if all do."""
    errors = list(errors)
    if errors[0]._name_ == SUCCESS and errors.count(errors[0]) == len(errors):
        return None
    return [error._name_ == SUCCESS for error in errors]
