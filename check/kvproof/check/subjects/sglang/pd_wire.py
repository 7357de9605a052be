"""The transport between two of SGLang's engines, over kvproof's wire: a manager on each side, senders and receivers.

It does what SGLang's own transports do (`disaggregation/common/conn.py`, `mooncake/conn.py`), without sockets and
threads. DECODE sends the pages and the slot for metadata that it has reserved for a *room*; PREFILL sends chunks of
pages, which wait in a queue. A turn of the thread that takes them from there is a job, and begins a transfer. When the
last one has landed, the metadata are copied, and DECODE hears of it. An abort marks the room as failed at once: what is
queued is dropped, and what moves goes on. From 0.5.20 on, PREFILL says when nothing moves any more (`ACK`).
"""

import ctypes
from typing import Any, NamedTuple

from kvproof.check.protocol.pair import DECODE, PREFILL
from kvproof.check.protocol.wire import FAILED as COPY_FAILED
from kvproof.check.protocol.wire import Copy, Message
from kvproof.check.subjects.loading.strict import Strict
from kvproof.check.subjects.loading.stub_modules import StubObject, nothing
from kvproof.check.subjects.sglang.scheduler_settings import CURRENT, GivenUp

FAILED, BOOTSTRAPPING, WAITING_FOR_INPUT, _, SUCCESS = range(5)  # of SGLang's `KVPoll`
TIMEOUT_SECONDS = 300  # of a room that waits for the other side: SGLang's default for both
METADATA, ABORT, STATUS, ACK = "metadata", "abort", "status", "ack"


class Body(NamedTuple):
    """What a message says of a room."""

    kind: str
    room: int
    pages: tuple[int, ...] = ()
    aux: int = -1
    prefix: int = 0
    status: int = FAILED
    generation: int = 0


class Chunk(NamedTuple):
    """Pages of a room that PREFILL wants to send. first: the number of those before them."""

    room: int
    pages: tuple[int, ...]
    first: int
    is_last: bool
    aux: int | None


def room_of(request: int) -> int:
    """The room of the request of PREFILL with this number. A room is never 0."""
    return request + 1


class Manager(Strict):
    """The transport of one side."""

    supports_host_destination = enable_staging = is_dummy_cp_rank = enable_all_cp_ranks_for_transfer = False
    attn_cp_rank, attn_cp_size = 0, 1

    def __init__(self, args: Any, mode: Any, server_args: Any, is_mla: bool = False, **options: Any) -> None:
        self.kv_args, self._wire, self._side = args, CURRENT.wire, CURRENT.side
        self._tells_aborts, self.enable_deferred_decode_kv_release = CURRENT.features
        self.prefill_info_table = {"prefill:0": StubObject(dp_size=1, follow_bootstrap_room=True)}
        self.status: dict[int, int] = {}
        self.reasons: dict[int, str] = {}
        self.transfer_infos: dict[int, Body] = {}  # by room: what DECODE has reserved
        self.queue: list[Chunk] = []
        self.running: dict[int, Chunk] = {}  # by the wire's numbers
        self.owed: dict[int, int] = {}  # by room: the abort that wants an answer when nothing moves any more
        self.poisoned: set[int] = set()
        self.waited: dict[int, int] = {}  # by room: the abort whose answer is waited for
        self.acked: set[int] = set()
        self.num_aborts = 0
        self.begun: list[Body] = []  # on DECODE: what was reserved since the last step
        CURRENT.managers[self._side] = self

    def try_ensure_parallel_info(self, address: str) -> bool:
        return address in self.prefill_info_table

    def update(self, room: int, status: int) -> None:
        """A room is opened, or goes on. Nothing follows a failure."""
        now = self.status.get(room)
        if now is None:
            if status in (BOOTSTRAPPING, WAITING_FOR_INPUT):
                self.status[room] = status
        elif now != FAILED:
            self.status[room] = FAILED if status == FAILED else max(now, status)

    def fail(self, room: int, reason: str) -> None:
        if room in self.status:
            self.reasons.setdefault(room, reason)
            self.update(room, FAILED)

    def say(self, body: Body) -> None:
        self._wire.send(Message(1 - self._side, body.kind, (body.room - 1,), body))

    # The thread that listens ----------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take what has arrived."""
        for body in self._wire.take(self._side):
            getattr(self, f"_on_{body.kind}")(body)

    def _on_metadata(self, body: Body) -> None:
        self.transfer_infos[body.room] = body
        self.update(body.room, WAITING_FOR_INPUT)

    def _on_abort(self, body: Body) -> None:
        if self.status.get(body.room, SUCCESS) != SUCCESS:
            self.fail(body.room, "aborted by decode")
        if self.enable_deferred_decode_kv_release and body.generation and body.room not in self.poisoned:
            self.owed[body.room] = body.generation
            self.acknowledge(body.room)

    def _on_status(self, body: Body) -> None:
        if body.status == SUCCESS:
            self.update(body.room, SUCCESS)
        else:
            self.fail(body.room, "prefill says that it has failed")

    def _on_ack(self, body: Body) -> None:
        if self.waited.get(body.room) == body.generation:
            self.acked.add(body.room)

    # The thread that copies -----------------------------------------------------------------------------------------

    def jobs(self) -> list[Chunk]:
        """What can be taken from the queue: of each room of which nothing moves, the first chunk."""
        busy = {chunk.room for chunk in self.running.values()}
        first: dict[int, Chunk] = {}
        for chunk in self.queue:
            if chunk.room not in busy:
                first.setdefault(chunk.room, chunk)
        return list(first.values())

    def work(self, chunk: Chunk, fails: bool) -> None:
        """Begin to copy a chunk, unless its room has failed; or that fails."""
        self.queue.remove(chunk)
        room = chunk.room
        if self.status.get(room, FAILED) == FAILED:
            self.acknowledge(room)
        elif fails:
            self._conclude(room, FAILED)
        elif not chunk.pages:
            self._landed(chunk)
        else:
            self.running[self._wire.begin(PREFILL, self._copies(chunk))] = chunk

    def _copies(self, chunk: Chunk) -> list[Copy]:
        there, peer = self.transfer_infos[chunk.room].pages, CURRENT.managers[DECODE].kv_args
        targets = there[chunk.first : chunk.first + len(chunk.pages)]
        return [
            Copy(source + here * size, target + page * size, size)
            for source, target, size in zip(
                self.kv_args.kv_data_ptrs, peer.kv_data_ptrs, self.kv_args.kv_item_lens, strict=True
            )
            for here, page in zip(chunk.pages, targets, strict=False)
        ]

    def arrived(self, transfer: int) -> None:
        """A transfer is over."""
        chunk = self.running.pop(transfer)
        if self._wire.state(transfer) == COPY_FAILED:
            self.poisoned.add(chunk.room)
            self.owed.pop(chunk.room, None)
            self._conclude(chunk.room, FAILED)
        else:
            self._landed(chunk)
        self.acknowledge(chunk.room)

    def _landed(self, chunk: Chunk) -> None:
        if chunk.is_last and self.status.get(chunk.room, FAILED) != FAILED:
            self._copy_metadata(chunk)
            self._conclude(chunk.room, SUCCESS)

    def _copy_metadata(self, chunk: Chunk) -> None:
        there = CURRENT.managers[DECODE].kv_args.aux_data_ptrs
        assert chunk.aux is not None
        for source, target, size in zip(self.kv_args.aux_data_ptrs, there, self.kv_args.aux_item_lens, strict=True):
            slot = self.transfer_infos[chunk.room].aux
            ctypes.memmove(target + slot * size, source + chunk.aux * size, size)

    def _conclude(self, room: int, status: int) -> None:
        if room not in self.status or self.status[room] == FAILED:
            return
        if status == FAILED:
            self.fail(room, "a transfer has failed")
        self.update(room, status)
        self.say(Body(STATUS, room, status=status))

    def acknowledge(self, room: int) -> None:
        """Say that nothing of an aborted room moves any more, if that is so and was asked for."""
        if room in self.owed and not any(chunk.room == room for chunk in self.running.values()):
            self.say(Body(ACK, room, generation=self.owed.pop(room)))

    # What DECODE asks of an aborted room ----------------------------------------------------------------------------

    def expect_ack(self, room: int) -> int:
        self.num_aborts += 1
        self.waited[room] = self.num_aborts
        self.acked.discard(room)
        return self.num_aborts

    def is_abort_release_safe(self, room: int, required_acks: int) -> bool:
        return not required_acks or room in self.acked

    def clear_deferred_abort_state(self, room: int) -> None:
        self.waited.pop(room, None)
        self.acked.discard(room)


class End(Strict):
    """A sender or a receiver: what one side has of a room."""

    supports_host_destination = supports_host_tensor_indices = require_staging = False

    def __init__(self, mgr: Manager, bootstrap_addr: str, bootstrap_room: int, *rest: Any, **options: Any) -> None:
        self.kv_mgr, self.room, self.conclude_state = mgr, bootstrap_room, None
        self.since: float | None = None
        mgr.update(bootstrap_room, BOOTSTRAPPING)

    conclude_state: int | None

    def poll(self) -> int:
        """How far the room is."""
        if self.conclude_state is None:
            status = self.kv_mgr.status.get(self.room, FAILED)
            if self._is_waiting(status) and CURRENT.clock.monotonic() - (self.since or 0) >= TIMEOUT_SECONDS:
                self.kv_mgr.fail(self.room, "timed out")
                self.give_up()
                status = FAILED
            if status in (SUCCESS, FAILED):
                self.conclude_state = status
            return status
        return self.conclude_state

    def _is_waiting(self, status: int) -> bool:
        raise NotImplementedError

    def give_up(self) -> None:
        """The room has failed here first."""

    def abort(self) -> None:
        self.kv_mgr.fail(self.room, "aborted")
        self.conclude_state = FAILED
        self.give_up()

    def failure_exception(self) -> None:
        self.conclude_state = FAILED
        self.clear()
        raise GivenUp(self.kv_mgr.reasons.pop(self.room, "failed"))

    def clear(self) -> None:
        self.kv_mgr.status.pop(self.room, None)
        self.kv_mgr.reasons.pop(self.room, None)


class Sender(End):
    """The end of PREFILL."""

    def __init__(self, mgr: Manager, bootstrap_addr: str, bootstrap_room: int, *rest: Any, **options: Any) -> None:
        super().__init__(mgr, bootstrap_addr, bootstrap_room)
        self.since, self._num_sent, self._num_pages, self._aux = CURRENT.clock.monotonic(), 0, 0, None

    _aux: int | None

    def _is_waiting(self, status: int) -> bool:
        return status == BOOTSTRAPPING

    def pop_decode_prefix_len(self) -> int:
        target = self.kv_mgr.transfer_infos.get(self.room)
        return target.prefix if target is not None else 0

    def init(self, num_kv_indices: int, aux_index: int | None = None) -> None:
        self._num_pages, self._aux = num_kv_indices, aux_index

    def should_send_kv_chunk(self, num_pages: int, last_chunk: bool) -> bool:
        return num_pages > 0 or last_chunk

    def get_max_transfer_tokens(self) -> None:
        """There is no limit."""

    def get_transfer_metric(self) -> None:
        """Nobody reads it."""

    def send(self, kv_indices: Any, state_indices: Any = None, num_kv_tokens: int | None = None) -> None:
        if self.conclude_state is not None:
            return
        first, self._num_sent = self._num_sent, self._num_sent + len(kv_indices)
        is_last = self._num_sent == self._num_pages
        if self.kv_mgr.status.get(self.room, FAILED) != FAILED:
            pages = tuple(int(page) for page in kv_indices)
            self.kv_mgr.queue.append(Chunk(self.room, pages, first, is_last, self._aux if is_last else None))

    def clear(self) -> None:
        super().clear()
        self.kv_mgr.transfer_infos.pop(self.room, None)
        self.kv_mgr.acknowledge(self.room)


class Receiver(End):
    """The end of DECODE."""

    def __init__(self, mgr: Manager, bootstrap_addr: str, bootstrap_room: int, *rest: Any, **options: Any) -> None:
        super().__init__(mgr, bootstrap_addr, bootstrap_room)
        self.abort_notified, self._was_published = False, False
        self.bootstrap_infos = [StubObject()]  # one rank of PREFILL

    def _is_waiting(self, status: int) -> bool:
        return status == WAITING_FOR_INPUT and self.since is not None

    def init(self, prefill_dp_rank: int) -> None:
        self.kv_mgr.update(self.room, WAITING_FOR_INPUT)

    def send_metadata(
        self,
        kv_indices: Any,
        aux_index: int | None = None,
        state_indices: Any = None,
        decode_prefix_len: int | None = None,
    ) -> None:
        assert aux_index is not None
        pages = tuple(int(page) for page in kv_indices)
        body = Body(METADATA, self.room, pages, aux_index, decode_prefix_len or 0)
        self.kv_mgr.begun.append(body)
        self.kv_mgr.say(body)
        self.since, self._was_published = CURRENT.clock.monotonic(), True

    def give_up(self) -> None:
        self.ensure_abort_notified()

    def ensure_abort_notified(self, force_arm: bool = False) -> None:
        """Tell PREFILL, once, if the release does that."""
        if self.abort_notified or not self.kv_mgr._tells_aborts:
            return
        generation = 0
        if self.kv_mgr.enable_deferred_decode_kv_release and (force_arm or self._was_published):
            generation = self.kv_mgr.expect_ack(self.room)
        self.kv_mgr.say(Body(ABORT, self.room, generation=generation))
        self.abort_notified = True


def connect(of: dict[str, Any]) -> None:
    """Let the modules of a release have this transport."""
    for module in of.values():
        for name, thing in (("get_kv_class", class_of), ("_make_abort_req", nothing)):  # nobody hears of aborts
            if hasattr(module, name):
                setattr(module, name, thing)


def class_of(backend: Any, kind: Any) -> Any:
    """In place of `get_kv_class`: the parts of a transport."""
    return {"KVARGS": CURRENT.kv_args, "MANAGER": Manager, "SENDER": Sender, "RECEIVER": Receiver}[kind.name]
