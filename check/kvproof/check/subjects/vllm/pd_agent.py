"""NIXL's agent, as vLLM's connector calls it, over kvproof's wire; and the pair whose turn it is.

An agent registers memory, lists blocks of it, and copies between a list of its own and one of a peer: READ from the
peer, or WRITE to it. A transfer may carry a notification for the peer, which it sends when all has moved. Agents send
notifications by themselves too. All this becomes transfers and messages of the wire, in which nothing is decided.

vLLM takes the agent, the clock and the sockets from names in its modules, which all engines of this process share.
`CURRENT` is what stands there, and the subject that is called says that it is its turn.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from kvproof.check.protocol.pair import PREFILL
from kvproof.check.protocol.wire import DONE, FAILED, MOVING, Copy, Message, Wire
from kvproof.check.subjects.loading.strict import Strict
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.vllm.pd_fakes import Socket, address

STATES = {MOVING: "PROC", DONE: "DONE", FAILED: "ERR"}
BEAT, REGISTRATION = b"HB:", b"PUSH_REG:"
FIGURES = StubObject(xferDuration=1, postDuration=1, totalBytes=1, descCount=1)  # which nobody reads
START = 1000.0  # what the clock of the engines shows when that of the wire is 0, which means "never" to some of them
HEX_DIGITS = 8  # of the suffix by which a name of a request differs from its base


def base_of(name: str) -> int:
    """The number of the request of PREFILL that a name of a request, on either side, has before its suffix."""
    return int(name.partition("-")[0])


def message(agent: str, body: bytes, sender: int) -> Message:
    """A notification to an agent of the rank of another one, with what it says."""
    to, _, rank = map(int, agent.split("."))
    if body.startswith(BEAT):
        return Message(to, "beat", tuple(map(base_of, body[len(BEAT) :].decode().split(","))), body, rank)
    if body.startswith(REGISTRATION):
        registered = msgspec.msgpack.decode(body[len(REGISTRATION) :])
        return Message(to, "registration", (base_of(registered["request_id"]),), body, rank)
    name = body.decode().rpartition(":")[0]
    return Message(to, "done" if to == PREFILL else "written", (base_of(name),), body, rank, (sender,))


def name_of(side: int, generations: list[int], rank: int) -> str:
    """The name of the agent of a rank of a side."""
    return f"{side}.{generations[side]}.{rank}"


class Agent(Strict):
    """What the connector calls of `nixl_agent`."""

    def __init__(self, wire: Wire, side: int, generations: list[int], rank: int) -> None:
        self._wire, self._side, self._generations, self._rank = wire, side, generations, rank
        self._name = name_of(side, generations, rank)
        self._lists: dict[int, tuple[str, list[tuple[int, int]]]] = {}  # by handle: whose, and (address, length)
        self._prepared: dict[int, tuple[str, list[Copy], bytes | None]] = {}
        self._begun: dict[int, int] = {}  # handle -> the wire's number
        self._num_handles = 0

    def _handle(self) -> int:
        self._num_handles += 1
        return self._num_handles

    # Memory and peers -----------------------------------------------------------------------------------------------

    def get_reg_descs(self, regions: Any, memory: str) -> Any:
        return regions

    def register_memory(self, regions: Any, **options: Any) -> None:
        """All memory of an engine can be copied."""

    def deregister_memory(self, regions: Any) -> None:
        """It is registered for the life of the engine."""

    def get_agent_metadata(self) -> bytes:
        return self._name.encode()

    def add_remote_agent(self, metadata: bytes) -> str:
        return metadata.decode()

    def remove_remote_agent(self, name: str) -> None:
        """Nothing is kept of it."""

    def check_remote_metadata(self, name: str) -> bool:
        return True

    def get_xfer_descs(self, blocks: Any, memory: str | None = None) -> Any:
        return blocks

    def prep_xfer_dlist(self, agent: str, blocks: Any, memory: str | None = None, **options: Any) -> int:
        """The handle of a list of blocks: of a peer, or of its own if the peer has no name.

        A row has an address and a length, or also the step to the next block, and how many there are.
        """
        listed: list[tuple[int, int]] = []
        for row in blocks:
            first, length, _, *more = (int(number) for number in row)
            step, number = more or (0, 1)
            listed += [(first + step * place, length) for place in range(number)]
        handle = self._handle()
        self._lists[handle] = agent, listed
        return handle

    def release_dlist_handle(self, handle: int) -> None:
        del self._lists[handle]

    # Transfers and notifications ------------------------------------------------------------------------------------

    def make_prepped_xfer(
        self, operation: str, own: int, own_places: Any, of_peer: int, places: Any, notif_msg: Any = None, **more: Any
    ) -> int:
        """Prepare a READ from the peer, or a WRITE to it."""
        peer, there = self._lists[of_peer]
        here = self._lists[own][1]
        pairs = [(there[int(far)], here[int(near)]) for near, far in zip(own_places, places, strict=True)]
        if operation == "WRITE":
            pairs = [(near, far) for far, near in pairs]
        copies = [Copy(source, target, length) for (source, length), (target, _) in pairs]
        handle = self._handle()
        self._prepared[handle] = peer, copies, notif_msg
        return handle

    def transfer(self, handle: int) -> str:
        peer, copies, note = self._prepared[handle]
        if not self._is_there(peer):
            return STATES[FAILED]
        self._begun[handle] = self._wire.begin(self._side, copies, message(peer, note, self._rank) if note else None)
        return STATES[MOVING]

    def _is_there(self, agent: str) -> bool:
        """Whether an agent has not died, with its memory."""
        side, generation, _ = map(int, agent.split("."))
        return generation == self._generations[side]

    def check_xfer_state(self, handle: int) -> str:
        return STATES[self._wire.state(self._begun[handle]) if handle in self._begun else FAILED]

    def get_xfer_telemetry(self, handle: int) -> StubObject:
        return FIGURES

    def release_xfer_handle(self, handle: int) -> None:
        self._begun.pop(handle, None)
        self._prepared.pop(handle, None)

    def send_notif(self, agent: str, notif_msg: bytes, **options: Any) -> None:
        if self._is_there(agent):  # else it is lost
            self._wire.send(message(agent, notif_msg, self._rank))

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        bodies = self._wire.take(self._side, self._rank)
        return {str(1 - self._side): bodies} if bodies else {}


class Clock(Strict):
    """The clock of both engines of the pair whose turn it is."""

    def perf_counter(self) -> float:
        return START + CURRENT.wire.now


class Current:
    """The pair whose turn it is, and the rank of a side of it that is being made.

    generations: how often an engine of each side has died. num_ranks: of the side.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.wire = Wire()
        self.side, self.generations = 0, [0, 0]
        self.rank, self.num_ranks = 0, 1
        self.answers: dict[str, Any] = {}  # by address, what is answered to a handshake

    def agent(self, name: str, config: Any) -> Agent:
        """In place of `NixlWrapper`."""
        return Agent(self.wire, self.side, self.generations, self.rank)

    def listen(self, answers: Any, ready: Any, stop: Any, host: str, port: int) -> None:
        """In place of the listener of handshakes: remember what it would answer."""
        self.answers[address(host, port)] = answers
        ready.set()

    @contextlib.contextmanager
    def connect(self, kind: Any, path: str) -> Iterator[Socket]:
        """In place of `zmq_ctx`. Raises NoAnswer when a question is asked and nobody listens."""
        yield Socket(self.answers.get(path), self.clock.perf_counter())


CURRENT = Current()
