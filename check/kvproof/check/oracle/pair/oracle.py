"""What is observed and expected of an opened pair: requests, pools, offers, claims and what is on the wire."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kvproof.check.oracle.enabled import Reply
from kvproof.check.oracle.pair.copies import sources_of
from kvproof.check.oracle.pair.records import Claim, Flights, OpenOffer, Request
from kvproof.check.oracle.pair.rules import NO_END, PairRules
from kvproof.check.oracle.pair.shares import shares_of
from kvproof.check.oracle.subject_calls import SubjectCalls
from kvproof.check.protocol.adapter_check import capabilities_of, check_adapter, check_observation
from kvproof.check.protocol.finding import AdapterError, Finding, direction
from kvproof.check.protocol.manager import Observation, Unsupported
from kvproof.check.protocol.pair import (
    CALM,
    DECODE,
    PAIR_CALLS,
    PREFILL,
    SIDE_NAMES,
    SIDES,
    Layer,
    PairConfig,
    PairStep,
    PairSubject,
    Piece,
    Sent,
)
from kvproof.spec.text.identity import Identities, Key

CALM_MARGIN = 3  # seconds before the end of an offer that a calm day does not reach


class PairOracle:
    """One opened pair in lockstep with the specification.

    steps: of each side, the step that was scheduled. is_launched: whether its worker has begun it. offers, claims:
    those that hold blocks, by the requests of their sides. moving: the transfers under way.
    """

    def __init__(self, subject: PairSubject, config: PairConfig, identities: Identities | None = None) -> None:
        check_adapter(subject, PAIR_CALLS)
        self.subject, self.config, self.capabilities = subject, config, capabilities_of(subject)
        self.coverage, self.notes, self.reply = Counter[str](), Counter[str](), Reply()
        self.identities = identities or Identities()
        if not self.capabilities.ranks and (config.prefill_ranks, config.decode_ranks, config.num_heads) != (1, 1, 1):
            raise Unsupported("several ranks or heads")
        if not config.shares_heads:
            raise Unsupported("ranks that cannot share the heads")
        calls = SubjectCalls(subject)
        self.call = calls.call
        calls.open(config)
        self.layers = [Layer(*one) for one in self.call("total-calls", "layers")]
        self.shares = shares_of(self.layers)
        self.explained = PairRules(config, self.coverage, self.shares, pushes=self.capabilities.pushes)
        self.requests: dict[int, Request] = {}
        self.steps: list[PairStep | None] = [None, None]
        self.is_launched = [False, False]
        self.offers: dict[int, OpenOffer] = {}
        self.claims: dict[int, Claim] = {}
        self.moving: dict[int, Flights] = {}
        self.unread: set[int] = set()  # the offers of which a claim wants no position: nothing of them moves
        self.num_explained = 0  # transfers
        self.messages: dict[int, Sent] = {}
        self.jobs: list[str] = []
        self.busy_since: int | None = None  # when something came on the wire or in the background, that is there still
        self.settle("open")

    def read(self, side: int, cells: list[int]) -> list[int | None]:
        """What cells hold in every layer."""
        found: list[int | None] = self.call("total-calls", "read_cells", side, cells)
        return found

    def write(self, side: int, cells: list[int], identities: Sequence[int]) -> None:
        """Let cells hold identities in every layer."""
        self.call("total-calls", "write_cells", side, cells, [self.number(one) for one in identities])

    def cells(self, side: int, table: Sequence[int], start: int, stop: int) -> list[int]:
        """The cells of positions of a request with this table."""
        slots = self.config.slots(side)
        return [table[position // slots] * slots + position % slots for position in range(start, stop)]

    def live(self, side: int | None = None) -> list[Request]:
        """The requests that are not over, of a side or of both."""
        return [one for one in self.requests.values() if not one.is_over and side in (None, one.side)]

    def identify(self, tokens: Sequence[int]) -> list[int]:
        """The identity of each position."""
        return self.identities.along(self.identities.root(Key()), tokens)

    def number(self, identity: int) -> int:
        """What a cell holds for an identity; 0 is in memory that nobody has written."""
        return identity + 1

    def look_at_wire(self) -> Sequence[tuple[int, Sequence[Piece]]]:
        """Ask what is on the wire and in the background. Returns what began to move."""
        begun, messages = self.call("total-calls", "on_wire", self.num_explained)
        self.messages = {one[0]: Sent(*one) for one in messages}
        self.jobs = self.call("total-calls", "jobs")
        self.num_explained += len(begun)
        if not (begun or self.moving or self.messages or self.jobs):
            self.busy_since = None
        elif self.busy_since is None:
            self.busy_since = int(self.explained.state.clock[0])
        return [(number, [Piece(*piece) for piece in pieces]) for number, pieces in begun]

    # What the pools show ---------------------------------------------------------------------------------------------

    def observe(self) -> None:
        """Ask the subject for its pools."""
        self.observed: tuple[Observation, Observation] = self.call("total-calls", "observe")

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type."""
        if not isinstance(self.observed, tuple) or len(self.observed) != len(SIDES):
            raise AdapterError("observe must return an Observation for each side", "observe")
        for side, one in zip(SIDES, self.observed, strict=True):
            check_observation(one, 1, self.config.num_blocks(side))

    def table(self, side: int, request: int) -> list[int]:
        """The blocks of a request, as its side shows them."""
        tables = self.observed[side].tables.get(request)
        return tables[0] if tables else []

    def settle(self, context: str) -> None:
        """A call is over: explain what began to move, what is given back, and compare the pools."""
        self.observe()
        for number, pieces in self.look_at_wire():
            self._begin_to_move(number, pieces, context)
        for offer in list(self.offers.values()):
            self._note_release(offer, context)
        self.note_dropped(context)
        for side in SIDES:
            self._compare_pool(side, context)

    def note_dropped(self, context: str) -> None:
        """Explain what is given back of claims."""
        for claim in list(self.claims.values()):
            self._note_dropped(claim, context)

    def _note_release(self, offer: OpenOffer, context: str) -> None:
        table = self.table(PREFILL, offer.request)
        if table[: len(offer.blocks)] == offer.blocks:
            return
        self.coverage["offer ended"] += 1
        if not self.explained.is_noticed(offer):
            self.coverage["offer expired"] += 1
            if offer.request in self.unread or self.capabilities.withdraws:
                self.explained.notice(offer, context)
        self._require_unread(offer, context)
        try:
            self.explained.end_offer(offer, f"{context}, which gives back what request {offer.request} offered")
        finally:
            del self.offers[offer.request]

    def _require_unread(self, offer: OpenOffer, context: str) -> None:
        """No transfer that repeats another one reads what is given back; when its lease is over, such a one is void."""
        rules = self.explained
        read = [one for moved in self.moving.values() for one in moved.repeated if one[0] == offer.request]
        for _, source, target in read:
            if rules.is_in_force(offer, rules.rank_of(source)):
                block = rules.block_of(PREFILL, source)
                sentence = f"a transfer of another rank still reads block {block}"
                raise Finding("source-held", sentence, call=context, blocks=[block])
            for claim in self.claims.values():
                claim.is_void = claim.is_void or target in claim.writes

    def _note_dropped(self, claim: Claim, context: str) -> None:
        held = set(self.table(DECODE, claim.request))
        units = [unit for unit in claim.writes if self.explained.block_of(DECODE, unit) not in held]
        if not units and (claim.writes or held):
            return
        self.coverage["withdrawn"] += claim.is_withdrawn
        self.require_unrepeated(units, "in-flight-held", context)
        try:
            self.explained.give_up(claim, units, f"{context}, which gives back what request {claim.request} claimed")
        except Finding as finding:
            raise finding.of_property("in-flight-held") from None
        if not claim.writes:
            self.end_claim(claim, context)

    def end_claim(self, claim: Claim, context: str) -> None:
        """Nothing is reserved for a claim any more."""
        self.explained.end_claim(claim, context)
        del self.claims[claim.request]

    def _compare_pool(self, side: int, context: str) -> None:
        observed, num_blocks = self.observed[side], self.config.num_blocks(side)
        holders = Counter[int]()
        for request, tables in observed.tables.items():
            if request not in self.requests:
                raise AdapterError(f"observe() shows a table of request {request}, which never came", "observe")
            holders.update(set(tables[0]) if tables else ())
        if side == DECODE:
            self._require_reserved(observed, holders, context)
        free = num_blocks - len(holders.keys() - set(observed.reserved)) - len(observed.reserved)
        if observed.free[0] != free:
            sentence = f"$expected blocks of {SIDE_NAMES[side]} are in no table, and it counts $observed as free"
            about = direction([(free, observed.free[0])])
            raise Finding("conservation", sentence, call=context, expected=free, observed=observed.free[0], about=about)
        for block, refs in enumerate(observed.refs or ()):
            if block not in observed.reserved and refs != holders[block]:
                sentence = f"block {block} of {SIDE_NAMES[side]} is in $expected tables, and its refcount is $observed"
                about = direction([(holders[block], refs)])
                raise Finding(
                    "refcount-exact", sentence, call=context, expected=holders[block], observed=refs, about=about
                )

    def _require_reserved(self, observed: Observation, holders: Counter[int], context: str) -> None:
        """No block into which a transfer may write is given to another request."""
        for claim in self.claims.values():
            shared = {self.explained.block_of(DECODE, unit) for unit in claim.writes}
            if others := sorted(block for block in shared if holders[block] > 1):
                names = [one for one, tables in observed.tables.items() if others[0] in tables[0]]
                name = next(one for one in names if one != claim.request)
                sentence = f"block {others[0]} waits for KV of request {claim.request}, and request {name} has it too"
                property = "in-flight-held" if claim.is_withdrawn else "hit-computed"
                raise Finding(property, sentence, call=context, blocks=others)

    # What moves ------------------------------------------------------------------------------------------------------

    def _begin_to_move(self, transfer: int, pieces: Sequence[Piece], context: str) -> None:
        context = f"{context}, which begins transfer {transfer}"
        moved, rules = Flights(pieces), self.explained
        self.moving[transfer] = moved
        self.coverage["transfer"] += 1
        for unit, first, (place, source), number in self._runs(self._sources(pieces, context)):
            claim = next((one for one in self.claims.values() if unit in one.writes), None)
            if claim is None:
                self._require_no_use(unit, context)
                continue
            offer = self.offers.get(claim.offer)
            rank, _ = self.shares.places[PREFILL][place]
            if offer is None or not rules.is_in_force(offer, rank):
                claim.lost_source = True
                continue
            source_unit = rules.unit_at(PREFILL, place, source)
            reader, _ = self.shares.places[DECODE][rules.place_of(DECODE, unit)]
            if (source_unit, reader) not in offer.pins:
                sentence = f"block {rules.block_of(PREFILL, source_unit)} is read, which is not of the offer"
                raise Finding("arrived-whole", sentence, call=context)
            slots = source % rules.unit, first
            if claim.writers.setdefault(unit, rank) != rank and slots[0] == slots[1]:
                self._repeat(moved, offer, source_unit, unit, context)
                continue
            rules.begin_to_move(moved, offer.pins[source_unit, reader][-1], claim.writes[unit], slots, number, context)

    def _repeat(self, moved: Flights, offer: OpenOffer, source: int, unit: int, context: str) -> None:
        """A rank of PREFILL writes what another one, which keeps the same, has written or writes."""
        contents = zip(self.explained.content_of(source), self.explained.content_of(unit), strict=False)
        if any(one != other for one, other in contents):
            block = self.explained.block_of(DECODE, unit)
            sentence = f"two transfers write block {block}, and not the same"
            raise Finding("one-writer", sentence, call=context, blocks=[block])
        self.coverage["written by two ranks"] += 1
        moved.repeated.append((offer.request, source, unit))

    def require_unrepeated(self, units: Iterable[int], property: str, context: str) -> None:
        """No transfer that repeats another one writes these units of DECODE any more."""
        used = {unit for moved in self.moving.values() for _, _, unit in moved.repeated}
        if found := used.intersection(units):
            block = self.explained.block_of(DECODE, min(found))
            sentence = f"a transfer of another rank still writes block {block}"
            raise Finding(property, sentence, call=context, blocks=[block])

    def _require_no_use(self, unit: int, context: str) -> None:
        """A transfer may write what a claim has behind the positions that it wants, but no other block."""
        block = self.explained.block_of(DECODE, unit)
        for claim in self.claims.values():
            slots = self.config.slots(DECODE)
            if block in claim.blocks:
                slot = self.explained.cell_of(DECODE, unit) % slots
                if claim.blocks.index(block) * slots + slot >= claim.stop:
                    return
        sentence = f"block {block} is written by a transfer, and no claim waits for KV there"
        raise Finding("one-writer", sentence, call=context, blocks=[block])

    def _sources(self, pieces: Sequence[Piece], context: str) -> dict[int, dict[int, tuple[int, int]]]:
        """Of each place of DECODE, and each cell that a transfer writes there: the place and the cell of PREFILL that
        it comes from."""
        layers = [[one for one in self.layers if one.side == side] for side in SIDES]
        slots = [self.config.slots(side) for side in SIDES]
        found = sources_of(pieces, (layers[PREFILL], layers[DECODE]), (slots[PREFILL], slots[DECODE]), context)
        sources = dict[int, dict[int, tuple[int, int]]]()
        places = {one: number for number, one in enumerate(self.shares.places[PREFILL])}
        for number, (rank, share) in enumerate(self.shares.places[DECODE]):
            parts = [found.get((rank, *kind), {}) for kind in self.shares.kinds[share]]
            if any(one != parts[0] for one in parts):
                sentence = "the layers of a position come from different positions"
                raise Finding("arrived-whole", sentence, call=context)
            if parts[0]:
                sources[number] = {cell: (places[of, share], source) for cell, (of, source) in parts[0].items()}
        return sources

    def _runs(self, sources: dict[int, dict[int, tuple[int, int]]]) -> Iterator[tuple[int, int, tuple[int, int], int]]:
        """Of each target unit and source unit: the target unit, its first slot, the first source cell with its place,
        and the number."""
        unit = self.explained.unit
        for place, cells in sources.items():
            run: tuple[int, int, tuple[int, int], int] | None = None
            for cell, (of, source) in sorted(cells.items()):
                there = self.explained.unit_at(DECODE, place, cell)
                if run is not None:
                    begun, first, (known, here), number = run
                    is_same = begun == there and (known, source // unit) == (of, here // unit)
                    if is_same and cell % unit == first + number and source == here + number:
                        run = begun, first, (known, here), number + 1
                        continue
                    yield run
                run = there, cell % unit, (of, source), 1
            if run is not None:
                yield run

    # Time ------------------------------------------------------------------------------------------------------------

    def note_deadlines(self) -> None:
        """Ask when offers end now."""
        if not self.offers:
            return
        shown = self.call("total-calls", "deadlines")
        now = self.explained.state.clock[0]
        for offer in self.offers.values():
            if offer.request not in shown:
                continue
            said = shown[offer.request]
            for rank, end in enumerate(said if isinstance(said, list) else [said] * len(offer.deadlines)):
                if end is None:
                    continue
                offer.deadlines[rank] = int(-(-end // 1))
                if offer.until[rank] != NO_END and offer.until[rank] <= now < offer.deadlines[rank]:
                    self.explained.renew(offer, rank, "deadlines")

    def advance(self, seconds: int) -> None:
        """Time passes."""
        context = f"pass({seconds})"
        self.note_deadlines()
        now = int(self.explained.state.clock[0]) + seconds
        for offer in self.offers.values():
            for rank, (end, until) in enumerate(zip(offer.deadlines, offer.until, strict=True)):
                if end not in (NO_END, until) and (until == NO_END or until <= now):
                    self.explained.renew(offer, rank, context)
                    self.coverage["renewed"] += 1
        self.call("total-calls", "tick", seconds)
        self.explained.fire("advance", context, seconds)
        for offer in self.offers.values():
            self.explained.expire_renewed(offer, context)

    def may_pass(self, seconds: int) -> bool:
        """Whether so much time may pass: on a calm day an offer is not reached by its end that a request is about, and
        nothing is on the wire for so long that it is given up."""
        if self.config.weather != CALM:
            return True
        patience, clock = self.capabilities.patience_seconds, self.explained.state.clock
        if patience and self.busy_since is not None and clock[0] + seconds - self.busy_since >= patience:
            return False
        wanted = {one.offer for one in self.live(DECODE)} | {claim.offer for claim in self.claims.values()}
        self.note_deadlines()
        now = self.explained.state.clock[0]
        return all(
            offer.first_deadline == NO_END or offer.first_deadline - now > seconds + CALM_MARGIN
            for offer in self.offers.values()
            if offer.request in wanted
        )

    def can_be_routed(self, request: Request) -> bool:
        """Whether the router may give the offer of a request to DECODE: on a calm day, while there is time."""
        offer = self.offers.get(request.number)
        if self.config.weather != CALM:
            return True
        now = self.explained.state.clock[0]
        if offer is None:
            return False
        return offer.first_deadline == NO_END or offer.first_deadline - now > 2 * CALM_MARGIN
