"""Two vLLM V1 engines with NIXL between them, as a pair: releases 0.26 to 0.33.

`vllm-pd` is pull mode: DECODE reads what PREFILL offers. `vllm-pd-push` is push mode: DECODE registers its blocks, and
PREFILL writes. Real are the scheduler, the block pool, and the connector with its worker (`pd_loader`, `pd_side`);
the agent of NIXL is replaced (`pd_agent`), and what `pd_fakes` lists.

A side has one, two or four ranks, each a worker with the heads that tensor parallelism gives it; what a handshake
refuses of two sides that differ is unsupported.

Limits: one KV group of full attention in one layer, no drafts, no asynchronous scheduling, and no transfers from DECODE
back to PREFILL. Blocks of two sizes in pull mode from 0.32 on, where those of DECODE are a
multiple of PREFILL's: up to 0.31 `kv_postprocess_blksize_on_receive` takes heads for slots, and the connector has no
other ratios. Push mode has them only in name: the side with the larger blocks raises.
"""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.capabilities import PairCan
from kvproof.check.protocol.manager import Assumption, Observation, Unsupported
from kvproof.check.protocol.pair import (
    DECODE,
    PREFILL,
    SIDE_NAMES,
    SIDES,
    WEATHERS,
    Offer,
    PairAdapter,
    PairConfig,
    PairStep,
    Reported,
)
from kvproof.check.protocol.wire import Wire
from kvproof.check.subjects.loading.strict import require_known
from kvproof.check.subjects.vllm.pd_agent import CURRENT
from kvproof.check.subjects.vllm.pd_loader import import_modules
from kvproof.check.subjects.vllm.pd_side import OFFERED, Side
from kvproof.spec.text.loads import LOAD_FAILURE_POLICIES

RANKS = 1, 2, 4
LEASE_SECONDS = 30
REST_SECONDS = 600  # longer than every time that the connector waits for
HEADS_FOR_SLOTS = "blocks_to_update.permute(0, 2, 1, 3)"
ASSUMPTIONS = (
    Assumption("one-clock", "Both engines have the same time."),
    Assumption("lease-30-seconds", "An offer is held for 30 seconds, and for 20 more with each heartbeat."),
    Assumption("messages-arrive-once", "A notification arrives, once, while both sides live; in any order."),
    Assumption("failed-is-fenced", "A transfer that has failed moves nothing any more."),
)


class VllmPd(PairAdapter):
    """A pair in pull mode."""

    name: str
    pushes = False
    subject = "vllm-pd"
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS
    capabilities = PairCan(
        caching=True,
        block_sizes=True,
        ranks=RANKS,
        load_failures=LOAD_FAILURE_POLICIES,
        lease_seconds=LEASE_SECONDS,
        ends_leases=True,
        rest_seconds=REST_SECONDS,
        dies=True,
        loses=False,
        doubles=False,
        weathers=WEATHERS,
    )

    def __init__(self, version: str) -> None:
        self.name = f"{self.subject} {version}"
        modules = import_modules(version)
        joins = inspect.getsource(modules.transfers.kv_postprocess_blksize_on_receive)
        self.capabilities = replace(self.capabilities, block_sizes=not self.pushes and HEADS_FOR_SLOTS not in joins)
        self._sides = [Side(version, modules) for _ in SIDES]
        self._paired: list[list[int]] = []  # ranks, heads and sizes of blocks with which handshakes were accepted

    def open(self, config: PairConfig) -> None:
        if config.slots(DECODE) % config.slots(PREFILL) or (self.pushes and config.slots(DECODE) != config.block_size):
            raise Unsupported("blocks of these two sizes")
        key = [config.num_heads, *(one for side in SIDES for one in (config.num_ranks(side), config.slots(side)))]
        if key not in self._paired:
            self._begin(config)
            self._require_handshakes()
            self._paired.append(key)
        self._begin(config)

    def _begin(self, config: PairConfig) -> None:
        self.wire, self._answers, self._generations = Wire(), dict[str, Any](), [0, 0]
        self._turn()
        for side in SIDES:
            self._sides[side].begin(side, config, self.wire, pushes=self.pushes)
        require_known()

    def _require_handshakes(self) -> None:
        """The workers that begin transfers accept those of the other side. Raises Unsupported, in the words of vLLM."""
        reader, other = self._sides[:: 1 if self.pushes else -1]
        if (error := reader.shake_hands(other)) is not None:
            raise Unsupported(f"a handshake of these two sides ends with {error!r}")
        require_known()

    def die(self, side: int) -> None:
        self._generations[side] += 1
        self._turn()
        self._sides[side].begin_again()
        require_known()

    def _turn(self) -> None:
        """Let the clock, the agents and the sockets be those of this pair."""
        CURRENT.wire, CURRENT.answers, CURRENT.generations = self.wire, self._answers, self._generations

    def add_request(
        self, side: int, request: int, tokens: list[int], max_tokens: int, is_offered: bool, offer: int | None
    ) -> None:
        self._turn()
        params: dict[str, Any] | None = OFFERED if is_offered else None
        if offer is not None:
            params = self._sides[PREFILL].left[offer]
        self._sides[side].come(request, tokens, max_tokens, params)
        require_known()

    def abort(self, side: int, request: int) -> None:
        self._turn()
        self._sides[side].abort(request)
        require_known()

    def schedule(self, side: int) -> PairStep:
        self._turn()
        step = self._sides[side].decide()
        require_known()
        return step

    def launch(self, side: int) -> None:
        self._turn()
        self._sides[side].start()
        require_known()

    def complete(self, side: int, sampled: dict[int, int]) -> Reported:
        self._turn()
        reported = self._sides[side].finish(sampled)
        require_known()
        return reported

    def offer_of(self, request: int) -> Offer | None:
        return self._sides[PREFILL].offer(request)

    def deadlines(self) -> Mapping[int, float | list[float | None]]:
        return self._sides[PREFILL].deadlines()

    def jobs(self) -> list[str]:
        return [f"{job} of {SIDE_NAMES[side]}" for side in SIDES for job in self._sides[side].workers.jobs()]

    def work(self, job: int, fails: bool) -> None:
        self._turn()
        before = len(self._sides[PREFILL].workers.jobs())
        side = PREFILL if job < before else DECODE
        self._sides[side].workers.work(job - before * side, fails)
        require_known()

    def kept(self, side: int) -> dict[str, list[str]]:
        return self._sides[side].kept()

    def observe(self) -> tuple[Observation, Observation]:
        prefill, decode = (side.observe() for side in self._sides)
        return prefill, decode


class VllmPdPush(VllmPd):
    """A pair in push mode."""

    pushes = True
    subject = "vllm-pd-push"
    capabilities = replace(VllmPd.capabilities, pushes=True)
