"""Requests and steps: the judge is the users, the router, and the model that executes each step in the memory."""

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.pair.oracle import PairOracle
from kvproof.check.oracle.pair.records import Claim, Request
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.pair import (
    DECODE,
    PREFILL,
    SIDE_NAMES,
    SIDES,
    Offer,
    PairLoad,
    PairStep,
    Reported,
)
from kvproof.check.protocol.scheduler import Chunk

SAMPLED = 1_000  # the first token that the model generates; no prompt has it
PREFIX_BLOCKS = 1  # blocks more than a request needs that its side must have


class ArrivalJudge:
    """Requests come, are routed, and are aborted."""

    def __init__(self, pair: PairOracle) -> None:
        self.pair = pair

    def _add(self, request: Request) -> bool:
        pair, side = self.pair, request.side
        length = len(request.tokens) + request.max_tokens
        slots = pair.config.slots(side)
        num_blocks = -(-(length + pair.capabilities.spare_tokens) // slots)
        num_units = sum(self._num_units(one) for one in (*pair.live(), request))  # each offers or claims them once
        fits = length <= pair.config.max_model_len and num_blocks + PREFIX_BLOCKS < pair.config.num_blocks(side)
        if request.number in pair.requests or not fits or not pair.explained.has_room(num_units):
            return False
        pair.requests[request.number] = request
        tokens, offer = list(request.tokens), request.offer
        arguments = side, request.number, tokens, request.max_tokens, request.is_offered, offer
        pair.call("total-calls", "add_request", *arguments)
        pair.settle(f"add_request({SIDE_NAMES[side]}, {request.number})")
        return True

    def _num_units(self, request: Request) -> int:
        """The units that a request has at most, at all places."""
        slots, num_places = self.pair.config.slots(request.side), len(self.pair.shares.places[request.side])
        length = request.num_prompt + request.max_tokens
        return -(-length // slots) * slots // self.pair.explained.unit * num_places

    def _new(self, number: int, side: int, tokens: tuple[int, ...], max_tokens: int) -> Request:
        return Request(number, side, list(tokens), self.pair.identify(tokens), len(tokens), max_tokens)

    @enabled_when()
    def op_prompt(self, request: int, tokens: tuple[int, ...]) -> bool:
        """A request comes to PREFILL, whose KV is for DECODE."""
        one = self._new(request, PREFILL, tokens, 1)
        one.is_offered = True
        return self._add(one)

    @enabled_when()
    def op_local(self, request: int, tokens: tuple[int, ...], max_tokens: int, side: int = 0) -> bool:
        """A request comes to a side, and concerns nobody else."""
        return side in SIDES and self._add(self._new(request, side, tokens, max_tokens))

    def routable(self) -> list[int]:
        """The requests of PREFILL that were not routed yet: those that made an offer, or at once if claims may come
        first."""
        return [one.number for one in self.pair.requests.values() if not one.is_routed and self._can_be_routed(one)]

    def _can_be_routed(self, one: Request) -> bool:
        if self.pair.capabilities.claims_first and one.is_offered and not one.is_over:
            return True
        return one.made_offer and self.pair.can_be_routed(one)

    @enabled_when(about=lambda judge: judge.routable())
    def op_route(self, offer: int, request: int, max_tokens: int) -> bool:
        """The router sends a request to DECODE, with its offer."""
        sender = self.pair.requests[offer]
        prompt = tuple(sender.tokens[: sender.num_prompt])
        one = self._new(request, DECODE, prompt, max_tokens)
        one.offer = offer
        sender.is_routed = self._add(one)
        if sender.is_routed:
            self.pair.coverage["routed when it was over"] += sender.made_offer and offer not in self.pair.offers
        return sender.is_routed

    def quittable(self) -> list[int]:
        """The requests that may be aborted: those of a side that has no step under way."""
        return [one.number for one in self.pair.live() if self.pair.steps[one.side] is None]

    @enabled_when(about=lambda judge: judge.quittable())
    def op_quit(self, request: int) -> bool:
        """The user of a request leaves."""
        pair, one = self.pair, self.pair.requests[request]
        one.is_over = True
        if request in pair.claims:
            claim = pair.claims[request]
            claim.is_withdrawn = True
            pair.coverage["aborted with a claim"] += 1
            writes = pair.explained.state.mover
            pair.coverage["aborted with a transfer under way"] += any(writes[pin] >= 0 for pin in claim.writes.values())
        elif one.offer is not None and not one.num_computed:
            pair.coverage["aborted before its claim"] += 1
        pair.call("total-calls", "abort", one.side, request)
        pair.settle(f"abort({SIDE_NAMES[one.side]}, {request})")
        return True


class StepJudge:
    """Steps of both sides."""

    def __init__(self, pair: PairOracle) -> None:
        self.pair = pair
        self.begun_at = [0, 0]  # when each side began its last step

    def idle(self) -> list[int]:
        """The sides without a step under way."""
        return [side for side in SIDES if self.pair.steps[side] is None]

    def scheduled(self) -> list[int]:
        """The sides with a step that was not launched."""
        return [side for side in SIDES if self.pair.steps[side] is not None and not self.pair.is_launched[side]]

    def launched(self) -> list[int]:
        """The sides whose step is executed."""
        return [side for side in SIDES if self.pair.is_launched[side]]

    @enabled_when(about=lambda judge: judge.idle())
    def op_schedule_side(self, side: int) -> bool:
        """A side decides its next step."""
        pair, context = self.pair, f"schedule({SIDE_NAMES[side]})"
        self.begun_at[side] = pair.explained.state.clock[0]
        step = pair.call("total-calls", "schedule", side)
        check_answer("schedule", step, PairStep)
        pair.steps[side], pair.is_launched[side] = step, False
        pair.observe()
        self._learn(side, step.reported, context)
        pair.note_dropped(context)
        for load in step.loads:
            self._claim(load, context)
        pair.settle(context)
        pair.reply.text = lambda: step_text(step)
        return True

    def _claim(self, load: PairLoad, context: str) -> None:
        pair, request = self.pair, self.pair.requests.get(load.request)
        if request is None or request.offer is None or load.request in pair.claims:
            raise AdapterError(f"schedule names a load of request {load.request}, which has no offer", "schedule")
        num_tokens, table = request.num_prompt, pair.table(DECODE, load.request)
        least = 0 if pair.capabilities.sends_token else 1  # positions: the token alone may be waited for
        if load.hit % pair.config.slots(DECODE) or not load.hit + least <= load.stop <= num_tokens:
            raise AdapterError(
                f"a load must take positions from a block on, up to the prompt's end: {load}", "schedule"
            )
        if request.is_over and not table:
            return  # it was given up in the same call: nothing may write there
        if len(table) * pair.config.slots(DECODE) < load.stop:
            sentence = f"request {load.request} waits for {load.stop} positions, and has {len(table)} blocks"
            raise Finding("in-flight-held", sentence, call=context)
        claim = Claim(load.request, request.offer, -1, load.hit, load.stop, list(table), {}, request.is_over)
        pair.explained.claim(claim, table, request.identities, context)
        pair.claims[load.request] = claim
        if load.hit == load.stop:
            pair.unread.add(request.offer)
        pair.coverage["claimed"] += 1
        pair.coverage["claimed behind a hit"] += load.hit > 0

    # The model -------------------------------------------------------------------------------------------------------

    @enabled_when(about=lambda judge: judge.scheduled())
    def op_launch_side(self, side: int) -> bool:
        """The worker of a side begins the step, and the model executes it."""
        pair, context = self.pair, f"launch({SIDE_NAMES[side]})"
        step = pair.steps[side]
        assert step is not None
        pair.call("total-calls", "launch", side)
        pair.is_launched[side] = True
        pair.settle(context)
        for chunk in step.chunks:
            self._execute(side, chunk, context)
        return True

    def _execute(self, side: int, chunk: Chunk, context: str) -> None:
        pair, request = self.pair, self.pair.requests.get(chunk.seq)
        if request is None or request.side != side or not chunk.start < chunk.stop <= len(request.tokens):
            raise AdapterError(f"schedule names {chunk}, which fits no request", "schedule")
        if request.is_over:
            return
        table, slots = pair.table(side, chunk.seq), pair.config.slots(side)
        if len(table) * slots < chunk.stop:
            sentence = f"request {chunk.seq} has {len(table)} blocks, and computes up to position {chunk.stop - 1}"
            raise Finding("no-use-after-free", sentence, call=context)
        if chunk.start:
            for position, found in enumerate(pair.read(side, pair.cells(side, table, 0, chunk.start))):
                if found != pair.number(request.identities[position]):
                    self._misread(request, position, table[position // slots], found, context)
        for position in range(chunk.start, chunk.stop):
            self._require_writable(request, position, table[position // slots], position % slots, context)
        identities = request.identities[chunk.start : chunk.stop]
        pair.write(side, pair.cells(side, table, chunk.start, chunk.stop), identities)
        request.num_computed = chunk.stop
        pair.coverage["hit"] += chunk.hit > 0
        pair.coverage["computed after a claim"] += request.offer is not None

    def _misread(self, request: Request, position: int, block: int, found: int | None, context: str) -> None:
        side = request.side
        names = {0: "nothing", None: "parts of several positions"}
        values = {"read": names.get(found) or self.pair.identities.describe((found or 0) - 1)}
        sentence = f"request {request.number} reads block {block} at position {position}, which has the KV of $read"
        raise Finding("read-back", sentence, call=context, blocks=[block], values=values, about=SIDE_NAMES[side])

    def _require_writable(self, request: Request, position: int, block: int, slot: int, context: str) -> None:
        """A step writes no block that waits for a transfer, and none that is offered unless with the same content."""
        explained, side = self.pair.explained, request.side
        unit = explained.unit_of(side, block, slot)
        row = explained.content_of(unit)
        if not row:
            return
        if explained.is_reserved(unit):
            sentence = f"a step writes block {block}, into which a transfer may write"
            raise Finding("one-writer", sentence, call=context, blocks=[block])
        place = slot % explained.unit
        if place < len(row) and row[place] != request.identities[position]:
            sentence = f"request {request.number} writes block {block}, which is offered"
            raise Finding("source-held", sentence, call=context, blocks=[block])

    # Completion ------------------------------------------------------------------------------------------------------

    @enabled_when(about=lambda judge: judge.launched())
    def op_complete_side(self, side: int) -> bool:
        """A side gets what its worker reports, and the tokens."""
        pair, context = self.pair, f"complete({SIDE_NAMES[side]})"
        step = pair.steps[side]
        assert step is not None
        sampling = [pair.requests[chunk.seq] for chunk in step.chunks if self._samples(chunk)]
        sampled = {one.number: SAMPLED + len(one.tokens) for one in sampling}
        reported = pair.call("total-calls", "complete", side, dict(sampled))
        check_answer("complete", reported, Reported)
        pair.steps[side], pair.is_launched[side] = None, False
        self._learn(side, reported, context)
        for one in sampling:
            if not one.is_over:
                one.tokens.append(sampled[one.number])
                one.identities = pair.identify(one.tokens)
                one.is_over = one.num_generated >= one.max_tokens
                if one.is_over and one.is_offered:
                    self._offer(one, context)
        pair.settle(context)
        pair.note_deadlines()
        if side == PREFILL:
            self._require_ended(context)
        pair.reply.text = lambda: reported_text(reported)
        return True

    def _samples(self, chunk: Chunk) -> bool:
        one = self.pair.requests[chunk.seq]
        return not one.is_over and chunk.stop == len(one.tokens)

    def _learn(self, side: int, reported: Reported, context: str) -> None:
        pair = self.pair
        for request in reported.received:
            claim = pair.claims.get(request)
            if claim is not None and not claim.is_withdrawn and side == DECODE:
                self._commit(claim, context)
        for request in reported.lost:
            claim = pair.claims.get(request)
            if claim is not None and side == DECODE:
                pair.coverage["lost"] += 1
                pair.require_unrepeated(claim.writes, "in-flight-held", context)
                try:
                    pair.explained.give_up(claim, [*claim.writes], context)
                except Finding as finding:
                    raise finding.of_property("in-flight-held") from None
                pair.end_claim(claim, context)
        for request in reported.failed:
            pair.requests[request].is_over = True
            pair.coverage["ended with an error"] += 1
            if request in pair.claims:
                pair.claims[request].is_withdrawn = True
                pair.coverage["lost"] += 1

    def _commit(self, claim: Claim, context: str) -> None:
        pair = self.pair
        context = f"{context}, which takes what request {claim.request} claimed for arrived"
        if claim.lost_source:
            sentence = "the transfer began when the offer was over"
            raise Finding("void-told", sentence, call=context, about="begun late")
        if claim.is_void:
            raise Finding("void-told", "a transfer of another rank was under way when the offer ended", call=context)
        table, slots = claim.blocks, pair.config.slots(DECODE)
        pair.require_unrepeated(claim.writes, "hit-written", context)
        pair.explained.commit(claim, context)
        identities = pair.requests[claim.request].identities
        for place, found in enumerate(pair.read(DECODE, pair.cells(DECODE, table, claim.hit, claim.stop))):
            position = claim.hit + place
            if found != pair.number(identities[position]):
                block = table[position // slots]
                sentence = f"block {block} does not have the KV of position {position}"
                raise Finding("arrived-whole", sentence, call=context, blocks=[block])
        del pair.claims[claim.request]
        pair.coverage["arrived"] += 1
        if pair.capabilities.sends_token:
            self._take_token(pair.requests[claim.request])

    def _take_token(self, one: Request) -> None:
        """The token that PREFILL generated has come with the KV."""
        one.tokens.append(SAMPLED + len(one.tokens))
        one.identities = self.pair.identify(one.tokens)
        one.is_over = one.num_generated >= one.max_tokens

    def _offer(self, one: Request, context: str) -> None:
        pair = self.pair
        offer = pair.call("total-calls", "offer_of", one.number)
        check_answer("offer_of", offer, Offer, type(None))
        if offer is None:
            pair.coverage["no offer"] += 1
            return
        if offer.num_tokens > one.num_computed:
            sentence = f"request {one.number} offers $observed positions, and $expected are computed"
            expected, observed = one.num_computed, offer.num_tokens
            raise Finding("hit-written", sentence, call=context, expected=expected, observed=observed)
        identities = one.identities[: offer.num_tokens]
        one.made_offer = True
        opened = pair.explained.offer(one.number, list(offer.blocks), identities, offer.until, context)
        pair.offers[one.number] = opened
        pair.coverage["offered"] += 1

    def _require_ended(self, context: str) -> None:
        """An offer whose end was reached before the step began, and that nothing reads, is given back in the step."""
        pair = self.pair
        if not pair.capabilities.ends_leases:
            return
        for offer in pair.offers.values():
            is_past = 0 <= offer.last_deadline <= self.begun_at[PREFILL]
            if is_past and not pair.explained.is_read(offer):
                sentence = f"the lease of what request {offer.request} offered ended before this step, and it is held"
                raise Finding("lease-ends", sentence, call=context)


def step_text(step: PairStep) -> str:
    """A step as text."""
    chunks = [f"request {one.seq} computes {one.start} to {one.stop - 1}" for one in step.chunks]
    loads = [f"request {one.request} waits for {one.hit} to {one.stop - 1}" for one in step.loads]
    return "; ".join((*chunks, *loads)) or "nothing to do"


def reported_text(reported: Reported) -> str:
    """What a side learnt, as text."""
    parts = [f"{name} {sorted(numbers)}" for name, numbers in zip(Reported._fields, reported, strict=True) if numbers]
    return "; ".join(parts)
