"""The network, the clock, background work and death: the judge decides what happens, and when."""

from collections.abc import Sequence

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.pair.oracle import PairOracle
from kvproof.check.oracle.pair.records import Flights, OpenOffer
from kvproof.check.protocol.pair import DECODE, LOSSY, PREFILL, SIDE_NAMES, SIDES, Sent


class NetworkJudge:
    """What happens between two engines."""

    def __init__(self, pair: PairOracle) -> None:
        self.pair = pair

    # Transfers -------------------------------------------------------------------------------------------------------

    @enabled_when(about=lambda judge: judge.pair.moving)
    def op_arrive(self, transfer: int, num_copies: int | None = None) -> bool:
        """A transfer moves its bytes, or some of them, and then has failed."""
        pair, moved = self.pair, self.pair.moving[transfer]
        if num_copies is not None and not pair.config.has_weather(LOSSY):
            return False
        pair.call("total-calls", "move", transfer, num_copies)
        if num_copies is None and pair.capabilities.pushes:
            self._end_parts(pair.explained.read_by(moved, pair.offers.values()))
        if num_copies is not None:
            self._forget_writes(moved)
        pair.explained.arrive(moved, f"arrive(transfer {transfer})", fails=num_copies is not None)
        del pair.moving[transfer]
        pair.look_at_wire()
        pair.coverage["transfer failed"] += num_copies is not None
        return True

    def _forget_writes(self, moved: Flights) -> None:
        """What a transfer that fails would have written may be written by another rank."""
        state, claims = self.pair.explained.state, self.pair.claims.values()
        units = {int(state.pinned[state.writes_by[flight]]) for flight in moved.flights}
        for claim in claims:
            for unit in units & claim.writers.keys():
                del claim.writers[unit]

    # Messages --------------------------------------------------------------------------------------------------------

    @enabled_when(about=lambda judge: judge.pair.messages)
    def op_deliver(self, message: int) -> bool:
        """A message arrives."""
        return self._deliver(message, again=False)

    @enabled_when(about=lambda judge: judge.pair.messages)
    def op_repeat(self, message: int) -> bool:
        """A message arrives, and will arrive again."""
        return self._deliver(message, again=True)

    def _deliver(self, message: int, *, again: bool) -> bool:
        self._notice(self.pair.messages[message])
        self.pair.call("total-calls", "deliver", message, again)
        self.pair.look_at_wire()
        return True

    @enabled_when(about=lambda judge: judge.pair.messages)
    def op_lose(self, message: int) -> bool:
        """A message is lost."""
        self.pair.coverage["lost message"] += 1
        self.pair.call("total-calls", "lose", message)
        self.pair.look_at_wire()
        return True

    def _notice(self, one: Sent) -> None:
        """What says that the reader of offers is done counts once, and only for offers that are open."""
        pair = self.pair
        pair.reply.text = f"{one.kind}, of {', '.join(f'request {offer}' for offer in one.offers) or 'nobody'}"
        if one.kind != "done" or one.to != PREFILL:
            return
        self._end_parts([pair.offers.get(request) for request in one.offers], one.rank, one.speakers)

    def _end_parts(
        self, offers: Sequence[OpenOffer | None], rank: int | None = None, speakers: Sequence[int] = ()
    ) -> None:
        pair = self.pair
        for offer in offers:
            if offer is None or not pair.explained.notice(offer, "deliver", rank if speakers else None, speakers):
                pair.coverage["noticed again or late"] += 1

    # Jobs and time ---------------------------------------------------------------------------------------------------

    def jobs(self) -> list[int]:
        """The places of what the engines would do in the background."""
        return list(range(len(self.pair.jobs)))

    @enabled_when(about=lambda judge: judge.jobs())
    def op_work(self, job: int) -> bool:
        """An engine does a job."""
        return self._work(job, fails=False)

    @enabled_when(about=lambda judge: judge.jobs())
    def op_work_in_vain(self, job: int) -> bool:
        """An engine does a job, which fails."""
        self.pair.coverage["job failed"] += 1
        return self._work(job, fails=True)

    def _work(self, job: int, *, fails: bool) -> bool:
        pair = self.pair
        name = pair.jobs[job]
        pair.call("total-calls", "work", job, fails)
        pair.settle(f"work({name})")
        pair.reply.text = f"{name}{' fails' if fails else ''}"
        return True

    @enabled_when()
    def op_pass(self, seconds: int) -> bool:
        """Time passes."""
        if not self.pair.may_pass(seconds):
            return False
        self.pair.advance(seconds)
        return True

    # Death -----------------------------------------------------------------------------------------------------------

    @enabled_when(about=lambda judge: SIDES)
    def op_die(self, side: int) -> bool:
        """The engine of a side dies with all that it has. Its transfers have failed, what was sent to it is lost."""
        pair, context = self.pair, f"die({SIDE_NAMES[side]})"
        for moved in pair.moving.values():
            pair.explained.arrive(moved, context, fails=True)
        pair.moving.clear()
        for one in pair.live(side):
            one.is_over = True
        pair.steps[side], pair.is_launched[side] = None, False
        self._forget(side, context)
        pair.call("total-calls", "wipe", side)
        pair.call("total-calls", "die", side)
        pair.coverage["died"] += 1
        pair.settle(context)
        return True

    def _forget(self, side: int, context: str) -> None:
        """Nothing that the dead side held is there any more."""
        pair = self.pair
        if side == PREFILL:
            for offer in pair.offers.values():
                pair.explained.end_offer(offer, context, is_dead=True)
            pair.offers.clear()
        if side == DECODE:
            for claim in pair.claims.values():
                pair.explained.fire("end_owner", context, claim.owner)
                pair.explained.give_up(claim, [*claim.writes], context, is_dead=True)
                pair.explained.free_owners.append(claim.owner)
            pair.claims.clear()
