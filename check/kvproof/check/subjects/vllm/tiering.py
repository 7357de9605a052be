"""vLLM's tiered offloading manager as a subject of store level, from release 0.24 on.

`TieringOffloadingManager` and its first tier, the host, are the release's own; the second tier is the judge's. A slot
is a chunk of the host. A store comes from the device (`prepare_store`, `complete_store`), or it is a promotion: a
look-up finds the key in the second tier, the manager takes a chunk for it, and the tier copies (`submit_load`). The
adapter promotes if the transfer has an even number, and no key of the call is in the host. What came from the device is
copied to the second tier as well (a cascade), which reads the host until the tier reports it; here that is at once.

Every call is a step of the scheduler: `on_schedule_end` comes after it. A look-up of the judge finds nothing in the
second tier, so that it starts no promotion. Limits: one second tier, which reports the end of a cascade at once and
never fails it; tiers that want whole requests, back pressure and requests of other machines are not driven.
"""

from collections.abc import Callable
from typing import Any

from kvproof.check.protocol.capabilities import StoreCan
from kvproof.check.protocol.manager import Refused
from kvproof.check.protocol.store import LRU, Staged, StoreConfig
from kvproof.check.subjects.loading import partial_import
from kvproof.check.subjects.loading.stub_modules import StubObject, Unused, no, nothing
from kvproof.check.subjects.vllm.offload import ARC, CONNECTOR, STAND_INS, TOKENS_OF_CHUNK, VllmOffload
from kvproof.check.subjects.vllm.v1_observation import call_with

SOURCES, TIERING, REGION = (
    "v1.metrics.cache_hit_source",
    "v1.kv_offload.tiering",
    "v1.kv_offload.cpu.shared_offload_region",
)


class Statistics:
    """`OffloadingConnectorStats`, which nobody reads here."""

    def __getattr__(self, name: str) -> Any:
        return nothing


class SecondTier:
    """The second tier: it has the keys that the judge wants to promote, and reports what the judge lets it report."""

    tier_type, medium, locality, bp_detector = "judge", None, None, None
    tolerates_off_thread_polling = False
    has_pending_work = staticmethod(no)
    on_request_finished = on_schedule_end = serve_external_requests = touch = staticmethod(nothing)

    def __init__(self, names: StubObject) -> None:
        self.names = names
        self.cache_hit_source = names.source
        self.offered: set[bytes] = set()
        self.loads: list[Any] = []  # jobs that copy to the host
        self.finished: list[Any] = []

    def on_new_request(self, context: Any) -> Any:
        """It wants no whole requests."""
        return self.names.context()

    def lookup(self, key: bytes, context: Any) -> Any:
        """Whether it has a key."""
        return self.names.answers.HIT if key in self.offered else self.names.answers.MISS

    def submit_store(self, job: Any) -> None:
        """Copy from the host."""
        self.finished.append(self.names.result(job.job_id, True))

    def submit_load(self, job: Any) -> None:
        """Copy to the host."""
        self.loads.append(job)

    def end(self, job: Any, success: bool) -> None:
        """A copy to the host has ended."""
        self.loads.remove(job)
        self.finished.append(self.names.result(job.job_id, success))

    def drain_jobs(self) -> None:
        """Give up what it copies to the host."""
        for job in list(self.loads):
            self.end(job, False)

    def get_finished_jobs(self) -> list[Any]:
        """What has ended since the last call."""
        finished, self.finished = self.finished, []
        return finished


class VllmTiering(VllmOffload):
    """`TieringOffloadingManager` over `CPUPrimaryTierOffloadingManager` and the judge's tier."""

    stand_ins = STAND_INS | {
        REGION: {"SharedOffloadRegion": Unused},
        f"{CONNECTOR}.metrics": {"OffloadingConnectorStats": Statistics},
    }

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.name = f"vllm-tiering {version}"
        self.capabilities = StoreCan(
            reset=True,
            lost_hits=0,
            refusal_slack=None,
            fails_whole=True,
            replacements=tuple(self._policies),
            eviction=self._eviction(),
        )

    def _makers(self) -> dict[str, Callable[[int], Any]]:
        base, tiers = self._module("v1.kv_offload.base"), self._module(f"{TIERING}.base")
        manager = self._module(f"{TIERING}.manager")
        self._class = manager.TieringOffloadingManager
        step = getattr(base, "ScheduleEndContext", None)  # from 0.25 on
        self._step = (step(new_req_ids=(), preempted_req_ids=()),) if step else ()
        has_sources = partial_import.has_module("vllm", SOURCES)  # from 0.31 on
        source = self._module(SOURCES).CacheHitSource.EXTERNAL_UNSPECIFIED if has_sources else None
        answers = getattr(base, "LookupResult", StubObject(HIT=True, MISS=False))  # from 0.25 on
        self._tier_names = StubObject(
            answers=answers, context=base.RequestOffloadingContext, result=tiers.JobResult, source=source
        )

        def make(policy: str) -> Callable[[int], Any]:
            def made(slots: int) -> Any:
                region = StubObject(create_kv_memoryview=lambda: memoryview(bytearray(slots)))
                sizes = dict.fromkeys(("num_blocks", "num_chunks"), slots) | {"block_size": TOKENS_OF_CHUNK}
                host = manager.CPUPrimaryTierOffloadingManager
                first = call_with(host, sizes | {"mmap_region": region, "cache_policy": policy})
                self._tier = SecondTier(self._tier_names)
                return call_with(self._class, {"primary_tier": first, "secondary_tiers": [self._tier]})

            return made

        return {policy: make(policy) for policy in (LRU, ARC)}

    def open(self, config: StoreConfig) -> None:
        super().open(config)
        self._promotions: dict[int, Any] = {}  # transfer -> the job that copies to the host

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        answers = super().look_up(request, keys)
        self._end_step()
        return answers

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        hashes = self._hashes(keys)
        if transfer % 2 == 0 and not any(map(self._reader.has, hashes)):
            return self._promote(transfer, request, hashes)
        staged = super().begin_store(transfer, request, keys)
        self._end_step()
        return staged

    def _promote(self, transfer: int, request: int, hashes: list[bytes]) -> Staged:
        context, tier = self._context(request, hashes), self._tier
        tier.offered = set(hashes)
        for one in hashes:
            self._manager.lookup(one, context)
        tier.offered = set()
        before = len(tier.loads)
        self._end_step()
        if len(tier.loads) == before:
            return Staged([], [])
        job = self._promotions[transfer] = tier.loads[-1]
        slots = job.chunk_ids if hasattr(job, "chunk_ids") else job.block_ids  # before 0.30
        return Staged(self._keys(job.keys), slots.tolist())

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        job = self._promotions.pop(transfer, None)
        if job is None:
            super().end_store(transfer, request, stored, failed)
        else:
            self._tier.end(job, not failed)
        self._end_step()

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int] | Refused:
        slots = super().begin_load(transfer, request, keys)
        self._end_step()
        return slots

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        super().end_load(transfer, request, keys)
        self._end_step()

    def clear(self) -> None:
        self._promotions.clear()
        super().clear()

    def _end_step(self) -> None:
        self._manager.on_schedule_end(*self._step)
