"""Two of SGLang's engines with a transport between them, as a pair.

Real are both schedulers (`scheduler_loader`, `pd_side`), with the queues of disaggregation, the pools and the prefix
caches; the transport is ours (`pd_wire`). The router gives a request to both sides at once, so that DECODE reserves
pages before PREFILL computes; the first token comes with the KV.

Limits: one rank on each side, full attention in one layer, no overlap of steps, no drafts, no host memory. Before
0.5.22 only a triton kernel can allocate pages of several slots, so a block has one.
"""

from dataclasses import replace
from typing import Any

from kvproof.check.protocol.capabilities import PairCan, whole
from kvproof.check.protocol.manager import Assumption, Observation, Unsupported
from kvproof.check.protocol.pair import (
    DECODE,
    PREFILL,
    SIDES,
    Offer,
    PairAdapter,
    PairConfig,
    PairStep,
    Reported,
)
from kvproof.check.protocol.wire import Wire
from kvproof.check.subjects.loading.strict import require_known
from kvproof.check.subjects.sglang.pd_scheduler import options_of
from kvproof.check.subjects.sglang.pd_side import Side
from kvproof.check.subjects.sglang.pd_wire import connect, room_of
from kvproof.check.subjects.sglang.scheduler_loader import ABORTS, DISAGGREGATION, import_scheduler
from kvproof.check.subjects.sglang.scheduler_settings import CURRENT

REST_SECONDS = 400  # longer than every time that a side waits for
SPARE_TOKENS = 6  # a prompt that leaves fewer slots of the whole pool is refused at the front end, which is not there
PATIENCE_SECONDS = 30  # so long DECODE waits until nothing of an aborted transfer moves
ASSUMPTIONS = (
    Assumption("one-clock", "Both engines have the same time."),
    Assumption("messages-arrive-once", "A message arrives, once, in any order."),
    Assumption("failed-is-fenced", "A transfer that has failed moves nothing any more."),
    Assumption("aborts-are-told", "If DECODE gives up, PREFILL is told, as far as the release does that."),
)


class SGLangPd(PairAdapter):
    """A pair."""

    assumptions = ASSUMPTIONS
    capabilities = whole(
        PairCan(
            caching=True,
            pushes=True,
            withdraws=True,
            claims_first=True,
            sends_token=True,
            local=False,
            loses=False,
            doubles=False,
            spare_tokens=SPARE_TOKENS,
            rest_seconds=REST_SECONDS,
            patience_seconds=PATIENCE_SECONDS,
        )
    )

    def __init__(self, version: str) -> None:
        self.name = f"sglang-pd {version}"
        self._release = release = import_scheduler(version)
        connect(release.of)
        if not release.has_large_pages:
            self.capabilities = replace(self.capabilities, block_size_max=1)
        self._sides = [Side(release) for _ in SIDES]
        conn = (release.root / "srt" / "disaggregation" / "common" / "conn.py").read_text("utf-8")
        flag = getattr(release.of["srt.environ"].envs, ABORTS, None)
        self._features = "_send_abort_notification" in conn, flag is not None and bool(flag.get())

    def open(self, config: PairConfig) -> None:
        if config.slots(DECODE) != config.slots(PREFILL):
            raise Unsupported("blocks of two sizes")
        self.wire, self._managers = Wire(), dict[int, Any]()
        prefill, decode = (options_of(self._release, side, config) for side in SIDES)
        self._settings = prefill, decode
        for side in SIDES:
            self._turn(side)
            self._sides[side].begin(side, config, self.wire)
        require_known()

    def _turn(self, side: int) -> None:
        """Let the clock, the options and the transport be those of this side of this pair."""
        CURRENT.wire, CURRENT.side, CURRENT.managers = self.wire, side, self._managers
        CURRENT.settings, CURRENT.features = self._settings, self._features
        CURRENT.kv_args = self._release.of[f"{DISAGGREGATION}.base.conn"].KVArgs

    def add_request(
        self, side: int, request: int, tokens: list[int], max_tokens: int, is_offered: bool, offer: int | None
    ) -> None:
        self._turn(side)
        self._sides[side].come(request, room_of(request if offer is None else offer), tokens, max_tokens)
        require_known()

    def abort(self, side: int, request: int) -> None:
        self._turn(side)
        self._sides[side].abort(request)
        require_known()

    def schedule(self, side: int) -> PairStep:
        self._turn(side)
        step = self._sides[side].decide()
        require_known()
        return step

    def launch(self, side: int) -> None:
        """Transfers are begun by a thread of their own."""

    def complete(self, side: int, sampled: dict[int, int]) -> Reported:
        self._turn(side)
        reported = self._sides[side].finish(sampled)
        require_known()
        return reported

    def offer_of(self, request: int) -> Offer | None:
        return self._sides[PREFILL].offer(request)

    def deadlines(self) -> dict[int, float]:
        return {}

    def deliver(self, message: int, again: bool) -> None:
        to = self.wire.messages[message].to
        super().deliver(message, again)
        self._turn(to)
        self._managers[to].listen()

    def move(self, transfer: int, num_copies: int | None) -> None:
        super().move(transfer, num_copies)
        self._turn(PREFILL)
        self._managers[PREFILL].arrived(transfer)

    def jobs(self) -> list[str]:
        return [f"transfer of request {chunk.room - 1}" for chunk in self._managers[PREFILL].jobs()]

    def work(self, job: int, fails: bool) -> None:
        self._turn(PREFILL)
        manager = self._managers[PREFILL]
        manager.work(manager.jobs()[job], fails)

    def kept(self, side: int) -> dict[str, list[str]]:
        return self._sides[side].kept()

    def observe(self) -> tuple[Observation, Observation]:
        found = []
        for side in SIDES:
            self._turn(side)
            found.append(self._sides[side].observe())
        return found[PREFILL], found[DECODE]
