"""The workers of one engine of a pair, a rank each, with vLLM's own aggregation of what they report.

Each has the memory of its heads, an agent and a thread of its own; all get the same metadata of a step. What they
report after the step goes through `KVOutputAggregator` if there are several, as in vLLM's executors.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from kvproof.check.protocol.pair import DECODE, PREFILL, PairConfig
from kvproof.check.protocol.wire import Wire
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.vllm.pd_agent import CURRENT
from kvproof.check.subjects.vllm.v1_observation import call_with
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options

LAYER = "layer 0"
BYTES = 4  # of a number of the memory; a cell is one number: the key and the value of one head of one half
HANDSHAKE, WRITER = "handshake", "writer"
WORKER_RECORDS = (
    "_reqs_to_send",
    "_reqs_to_process",
    "_recving_metadata",
    "_recving_transfers",
    "_recv_failures",
    "_pending_recv_notifs",
    "consumer_notification_counts_by_req",
    "expected_consumer_notifications_by_req",
    "_sending_transfers",
    "_send_failures",
    "_push_finished_blocks",
    "_pending_d_registrations",
)


class Results(NamedTuple):
    """What the scheduler learns of the workers: requests of which all was sent, or received; those of the latter that
    failed; and blocks that got no KV."""

    sent: set[str]
    received: set[str]
    failed: set[str]
    invalid: set[int]


def groups_of_rank(interface: Any, groups: Any, num_heads: int, heads: tuple[int, ...]) -> Any:
    """What a rank keeps of the KV: its heads, or all of it where the KV has none."""
    (group,) = groups.kv_cache_groups
    spec = group.kv_cache_spec
    own = replace(spec, num_kv_heads=len(heads))
    if not num_heads:  # a latent vector has as many bytes as a key and a value together
        wanted = {"block_size": spec.block_size, "num_kv_heads": 1, "head_size": 2 * spec.head_size}
        own = call_with(interface.MLAAttentionSpec, wanted | {"dtype": spec.dtype})
    changed = copy.copy(groups)
    changed.kv_cache_groups = [interface.KVCacheGroupSpec(group.layer_names, own)]
    return changed


class Workers:
    """The workers of one engine."""

    def __init__(self, modules: StubObject, side: int, config: PairConfig, wire: Wire, *, pushes: bool) -> None:
        self._modules, self._side, self._config, self._wire = modules, side, config, wire
        self._pushes = pushes
        self._caches: list[torch.Tensor] = []  # of each rank
        self.ranks: list[Any] = []
        self._aggregator: Any = None

    def begin(self, make: Callable[[Any], Any], connector: Any, groups: Any) -> None:
        """Make new workers with the memory of those before. make: a worker with these KV cache groups."""
        config, side, is_first = self._config, self._side, not self._caches
        num_ranks = config.num_ranks(side)
        self.ranks = []
        CURRENT.num_ranks = num_ranks
        for rank in range(num_ranks):
            CURRENT.rank = rank
            heads = config.heads(side, rank)
            worker = make(groups_of_rank(self._modules.interface, groups, config.num_heads, heads))
            if is_first:
                self._caches.append(self._memory(rank, heads))
            worker.register_kv_caches({LAYER: self._caches[rank]})
            self.ranks.append(worker)
        CURRENT.rank = 0
        answers = {(0, rank): worker.get_handshake_metadata() for rank, worker in enumerate(self.ranks)}
        connector.set_xfer_handshake_metadata_pp_aware(answers)
        if num_ranks > 1:
            self._aggregator = self._modules.transfers.KVOutputAggregator.from_connector(connector, num_ranks)

    def _memory(self, rank: int, heads: tuple[int, ...]) -> torch.Tensor:
        """Memory of the wire. Where blocks of DECODE are larger, what arrives lies in it as PREFILL's blocks do."""
        config, side = self._config, self._side
        num_blocks, slots = config.num_blocks(side), config.slots(side)
        is_joined = side == DECODE and slots != config.slots(PREFILL)
        memory = self._wire.memory(
            side,
            num_blocks,
            slots,
            rank=rank,
            layer=0,
            heads=heads,
            arrival_slots=config.slots(PREFILL) if is_joined else 0,
        )
        return torch.frombuffer(memory.buffer, dtype=torch.int32).view(num_blocks, len(heads), slots, 1)

    @property
    def workers(self) -> Iterator[Any]:
        """The sides of the connectors at the workers."""
        return (one.connector_worker for one in self.ranks)

    # Steps ----------------------------------------------------------------------------------------------------------

    def start(self, metadata: Any) -> None:
        """The workers begin a step."""
        for one in self.ranks:
            one.bind_connector_metadata(copy.deepcopy(metadata) if len(self.ranks) > 1 else metadata)
            one.start_load_kv(None)

    def results(self, finished: Any) -> Results:
        """What they report after a step."""
        found = [self._results_of(one, finished) for one in self.ranks]
        for one in self.ranks:
            one.clear_connector_metadata()
        if len(found) == 1:
            return found[0]
        kind = self._modules.outputs.KVConnectorOutput
        outputs = [
            Options(
                kv_connector_output=call_with(
                    kind,
                    {
                        "finished_sending": one.sent or None,
                        "finished_recving": one.received or None,
                        "invalid_block_ids": one.invalid,
                        "failed_recving": one.failed,
                    },
                )
            )
            for one in found
        ]
        whole = self._aggregator.aggregate(outputs).kv_connector_output
        failed = set(getattr(whole, "failed_recving", ()))
        sent, received = set(whole.finished_sending or ()), set(whole.finished_recving or ())
        return Results(sent, received, failed, whole.invalid_block_ids)

    @staticmethod
    def _results_of(one: Any, finished: Any) -> Results:
        if hasattr(one, "get_transfer_results"):
            found = one.get_transfer_results(finished)
            sent, received = set(found.finished_sending), set(found.finished_recving)
            return Results(sent, received, set(found.failed_recving), one.get_block_ids_with_load_errors())
        sent, received = one.get_finished(finished)
        return Results(set(sent or ()), set(received or ()), set(), one.get_block_ids_with_load_errors())

    def kept(self) -> Iterator[tuple[str, set[Any]]]:
        """The records of requests, by their names: what any rank has in them."""
        for record in WORKER_RECORDS:
            yield f"worker: {record}", {one for worker in self.workers for one in getattr(worker, record, ())}

    # In the background ----------------------------------------------------------------------------------------------

    def handshake(self, engine: str, host: str, port: int, num_ranks: int) -> BaseException | None:
        """Let each worker ask this engine for its metadata at once; what one of them cannot work with."""
        for worker in self.workers:
            future = worker._ensure_handshake(engine, host, port, num_ranks)
            worker._handshake_initiation_executor.run(0, fails=False)
            if (error := future.exception()) is not None:
                refused: BaseException = error
                return refused
        return None

    def jobs(self) -> list[str]:
        """The handshakes that were begun, and rounds of the writers' threads that would be made; rank by rank."""
        return [name for name, _ in self._jobs()]

    def _jobs(self) -> Iterator[tuple[str, Callable[[bool], None]]]:
        for rank, worker in enumerate(self.workers):
            executor = worker._handshake_initiation_executor
            end = f" of rank {rank}" if len(self.ranks) > 1 else ""
            for place in range(len(executor.jobs)):
                yield HANDSHAKE + end, partial(executor.run, place)
            if self._pushes and self._is_awake(rank, worker):
                yield WRITER + end, partial(self._write, worker)

    def _is_awake(self, rank: int, worker: Any) -> bool:
        """Whether a writer was woken; or polls, and would find a notification."""
        polls = bool(worker._push_finished_blocks)
        return worker._push_writer_wake.is_raised or (polls and bool(self._wire.inboxes.get((self._side, rank))))

    @staticmethod
    def _write(worker: Any, fails: bool) -> None:
        """A round of a writer, which cannot fail."""
        worker._push_writer_wake.is_raised = False
        worker._push_writer_stop.begin()
        worker._push_writer_thread.target()

    def work(self, job: int, fails: bool) -> None:
        """Do one of the jobs."""
        list(self._jobs())[job][1](fails)
