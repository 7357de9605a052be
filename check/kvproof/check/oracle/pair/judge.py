"""The judge of pairs of engines, and how a page draws it: two pools, the wire between them, and what is offered."""

from collections import Counter
from collections.abc import Iterator

from kvproof.check.oracle.enabled import RuledJudge, observation_checked
from kvproof.check.oracle.pair.network import NetworkJudge
from kvproof.check.oracle.pair.oracle import PairOracle
from kvproof.check.oracle.pair.resting import RestJudge
from kvproof.check.oracle.pair.serving import ArrivalJudge, StepJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pair import DECODE, PREFILL, SIDE_NAMES, SIDES, PairConfig, PairSubject
from kvproof.check.protocol.pair_operations import PairOperation
from kvproof.reports.frames import Block, EntryFrame, Lane, Move, PoolFrame, StepFrame
from kvproof.spec.text.identity import Identities


class PairJudge(RuledJudge):
    """One opened pair in lockstep with the specification."""

    kinds = PairOperation.kinds()
    config: PairConfig

    def __init__(self, subject: PairSubject, config: PairConfig, identities: Identities | None = None) -> None:
        self.pair = pair = PairOracle(subject, config, identities)
        self.subject, self.config, self.capabilities = subject, config, pair.capabilities
        self.coverage, self.notes = pair.coverage, pair.notes
        self.is_sparse = False
        steps, network = StepJudge(pair), NetworkJudge(pair)
        super().__init__(pair.reply, ArrivalJudge(pair), steps, network, RestJudge(pair, steps, network))

    @observation_checked
    def compare_all(self, context: str) -> None:
        """Compare everything that the pair shows."""
        self.pair.settle(context)

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""
        self.pair.check_observed()


def frame_of_pair(judge: PairJudge, finding: Finding | None) -> StepFrame:
    """The frame of a judge; `finding` is what it found, if it is the last."""
    pair, pools = judge.pair, list[PoolFrame]()
    for side in SIDES:
        used = {block for tables in pair.observed[side].tables.values() for block in tables[0]}
        reserved = pair.observed[side].reserved
        expected = judge.config.num_blocks(side) - len(used | set(reserved))
        free = pair.observed[side].free[0]
        pools.append(PoolFrame(SIDE_NAMES[side], expected, free if free != expected else None))
    lanes = [lane for side in SIDES for lane in _lanes(judge, side)]
    return StepFrame("", (*lanes, *_leases(judge)), tuple(_blocks(judge, finding)), tuple(pools), tuple(_moves(judge)))


def _base(judge: PairJudge, side: int) -> int:
    """The blocks of DECODE are drawn behind those of PREFILL."""
    return judge.config.num_blocks(PREFILL) if side == DECODE else 0


def _lanes(judge: PairJudge, side: int) -> Iterator[Lane]:
    pair, slots, base = judge.pair, judge.config.slots(side), _base(judge, side)
    for number, tables in sorted(pair.observed[side].tables.items()):
        request = pair.requests[number]
        claim = pair.claims.get(number) if side == DECODE else None
        status = "over" if request.is_over else "waits for KV" if claim else "is served"
        if side == PREFILL and number in pair.offers:
            status = "is offered"
        entries = []
        for place, block in enumerate(tables[0]):
            known = max(0, min(slots, len(request.tokens) - place * slots))
            done = max(0, min(known, (claim.hit if claim else request.num_computed) - place * slots))
            entries.append(EntryFrame(base + block, known, done))
        yield Lane(f"{SIDE_NAMES[side]}, request {number}", status, tuple(entries))


def _leases(judge: PairJudge) -> Iterator[Lane]:
    now = judge.pair.explained.state.clock[0]
    for request, offer in sorted(judge.pair.offers.items()):
        end = offer.last_deadline
        left = f"held for {end - now} s more" if end >= 0 else "held until it is read"
        yield Lane(f"lease of request {request}", left if now < end or end < 0 else "is over")
    for number, message in judge.pair.messages.items():
        about = ", ".join(f"request {offer}" for offer in message.offers)
        yield Lane(f"message {number} to {SIDE_NAMES[message.to]}", f"{message.kind}, of {about or 'nobody'}")


def _blocks(judge: PairJudge, finding: Finding | None) -> Iterator[Block]:
    explained = judge.pair.explained
    named = set(finding.blocks) if finding is not None else set[int]()
    for side in SIDES:
        holders = Counter(b for tables in judge.pair.observed[side].tables.values() for b in set(tables[0]))
        for block in range(judge.config.num_blocks(side)):
            units = explained.units_of(side, block)
            pins = sum(explained.state.reads[unit] + (explained.state.writer[unit] >= 0) for unit in units)
            if holders[block] or block in named:
                shown = "reserved" if any(map(explained.is_reserved, units)) else "used" if holders[block] else "free"
                yield Block(_base(judge, side) + block, holders[block], shown, num_pins=pins, is_named=block in named)


def _moves(judge: PairJudge) -> Iterator[Move]:
    base = _base(judge, DECODE)
    explained, state = judge.pair.explained, judge.pair.explained.state
    for number, moved in judge.pair.moving.items():
        for flight in moved.flights:
            read, write = state.reads_by[flight], state.writes_by[flight]
            source = None if read < 0 else explained.block_of(PREFILL, state.pinned[read])
            target = base + explained.block_of(DECODE, state.pinned[write])
            yield Move("transfer", source, target, f"transfer {number}{' has lost its source' if read < 0 else ''}")
