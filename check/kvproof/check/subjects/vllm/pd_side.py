"""One engine of a pair: vLLM's V1 scheduler, and its NIXL connector on the sides of the scheduler and of the worker.

This is `VllmV1Scheduler` with a connector of the release in place of ours. A step calls the worker as vLLM's model
runner does: it binds the metadata that the scheduler made, starts transfers, and after the step asks what is over.

Names. vLLM gives a request the same name on both sides, each with a random suffix, and in push mode PREFILL finds by it
what DECODE registers. Here the name of a request with an offer is the number of the offered request, and its own number
as the suffix.
"""

from typing import Any

import torch

from kvproof.check.protocol.manager import Observation
from kvproof.check.protocol.pair import Offer, PairConfig, PairLoad, PairStep, Reported
from kvproof.check.protocol.scheduler import ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request
from kvproof.check.protocol.wire import Wire
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.vllm.pd_agent import CURRENT, HEX_DIGITS, START, base_of
from kvproof.check.subjects.vllm.v1_scheduler import Tokens, VllmV1Scheduler
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options
from kvproof.spec.text.identity import Key
from kvproof.spec.text.loads import FAIL

LAYER = "layer 0"
BYTES = 4  # of a number of the memory; a cell is one number: the key and the value of one head of one half
HANDSHAKE, WRITER = "handshake", "writer"
OFFERED = {"do_remote_decode": True}
SCHEDULER_RECORDS = (
    "requests",
    "finished_recving_kv_req_ids",
    "failed_recving_kv_req_ids",
)
CONNECTOR_RECORDS = (
    "_reqs_need_recv",
    "_reqs_need_save",
    "_reqs_need_send",
    "_reqs_in_batch",
    "_reqs_not_processed",
    "_heartbeat_req_engine",
    "_push_pending_registrations",
    "_push_registration_deadlines",
    "_finished_request_blocks",
    "_newly_finished_push_blocks",
)
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


class Side(VllmV1Scheduler):
    """One engine of a pair."""

    head_size = 1

    def __init__(self, version: str, modules: StubObject) -> None:
        self._given = modules
        super().__init__(version)

    def import_modules(self, version: str) -> Any:
        self._offloading = self._multi = None
        return self._given

    # Making it ------------------------------------------------------------------------------------------------------

    def begin(self, side: int, config: PairConfig, wire: Wire, *, pushes: bool) -> None:
        """Make the engine of a side."""
        self.side, self._wire, self._pushes = side, wire, pushes
        self._cache: dict[str, Any] = {}  # by layer
        self._config = config
        self.left: dict[int, dict[str, Any]] = {}  # by request that has ended, what the router gets of it
        self.begin_again()

    def begin_again(self) -> None:
        """Make an engine that knows nothing, with the memory of the one before; its generation is in `CURRENT`."""
        side, config = self.side, self._config
        self._policy = config.load_failures or FAIL
        self._params: dict[int, dict[str, Any]] = {}  # by request, until it is added
        self._loads: list[PairLoad] = []  # since the last step
        self._by_name: dict[str, int] = {}
        self._hits: dict[str, int] = {}  # by request, what was found on this side
        num_blocks, slots = config.num_blocks(side), config.slots(side)
        num_slots = (num_blocks - 1) * slots  # of all blocks but the null block: no request that fits has more
        self.open(
            SchedulerConfig(
                num_gpu_blocks=num_blocks,
                block_size=slots,
                caching=config.caching,
                max_model_len=min(config.max_model_len, num_slots - 1),
                max_num_batched_tokens=config.max_num_batched_tokens,
                transfers=True,
            )
        )

    def _transfers(self, config: SchedulerConfig) -> Options:
        return Options(
            engine_id=f"engine {self.side}.{CURRENT.generations[self.side]}",
            kv_load_failure_policy=self._policy,
            is_kv_consumer=True,
            is_kv_producer=True,
            kv_buffer_device="cuda",
            kv_role=("kv_producer", "kv_consumer")[self.side],
            enable_permute_local_kv=False,
            get_from_extra_config=lambda name, default: default,
        )

    def _options(self, config: SchedulerConfig) -> Options:
        """What the connector reads too: one rank, and one head in one layer."""
        options = super()._options(config)
        options.scheduler_config.disable_hybrid_kv_cache_manager = False
        vars(options.parallel_config).update(
            tensor_parallel_size=1,
            prefill_context_parallel_size=1,
            decode_context_parallel_size=1,
            data_parallel_index=self.side,  # so that each has a port of its own
        )
        vars(options.model_config).update(
            use_mla=False,
            is_deepseek_mla=False,
            enable_sleep_mode=False,
            model="model",
            dtype="float16",
            get_total_num_kv_heads=lambda: 1,
            get_num_kv_heads=lambda *parallel: 1,
            get_head_size=lambda: self.head_size,
            get_total_num_hidden_layers=lambda: 1,
            get_num_layers=lambda *parallel: 1,
            hf_config=Options(),
            hf_text_config=Options(),
        )
        vars(options.cache_config).update(
            cache_dtype="auto",
            mamba_cache_mode="none",
            get_resolved_kv_cache_layout=lambda: StubObject(name="LBHNC"),
        )
        return options

    def connect(self, config: SchedulerConfig, options: Options, groups: Any) -> None:
        """Make both sides of the connector, and let the worker's register its memory."""
        CURRENT.side = self.side
        connectors, role = self._modules.nixl.connector, self._modules.role
        kind = connectors.NixlPushConnector if self._pushes else connectors.NixlPullConnector
        self.connector = options.kv_transfer_config.connector = kind(options, role.SCHEDULER, groups)
        self._watch()
        self.runner = kind(options, role.WORKER, groups)
        spec = groups.kv_cache_groups[0].kv_cache_spec
        num_ints = spec.page_size_bytes // config.block_size // BYTES
        if not self._cache:
            memory = self._wire.memory(self.side, config.num_gpu_blocks, config.block_size, num_ints)
            shape = config.num_gpu_blocks, 1, config.block_size, num_ints
            self._cache = {LAYER: torch.frombuffer(memory.buffer, dtype=torch.int32).view(shape)}
        self.runner.register_kv_caches(self._cache)
        self.connector.set_xfer_handshake_metadata_pp_aware({(0, 0): self.runner.get_handshake_metadata()})

    def _watch(self) -> None:
        """Note which loads begin, as the scheduler's calls of its connector show."""
        ask, give = self.connector.get_num_new_matched_tokens, self.connector.update_state_after_alloc

        def asked(request: Any, num_computed_tokens: int) -> Any:
            self._hits[request.request_id] = num_computed_tokens
            return ask(request, num_computed_tokens)

        def given(request: Any, blocks: Any, num_external_tokens: int) -> Any:
            if num_external_tokens:
                hit = self._hits[request.request_id]
                self._loads.append(PairLoad(self.number_of(request.request_id), hit, hit + num_external_tokens))
            return give(request, blocks, num_external_tokens)

        self.connector.get_num_new_matched_tokens, self.connector.update_state_after_alloc = asked, given

    # Requests -------------------------------------------------------------------------------------------------------

    def come(self, request: int, tokens: list[int], max_tokens: int, params: dict[str, Any] | None) -> None:
        """A request comes, with what the router says of it."""
        if params is not None:
            self._params[request] = dict(params)
        self.add_request(request, [request], tokens, Key(), (), max_tokens, None)

    def name_of(self, request: Request) -> str:
        params = self._params.get(request.seq, {})
        of = params.get("remote_request_id")
        text = str(request.seq) if of is None else f"{base_of(of)}-{request.seq:0{HEX_DIGITS}x}"
        self._by_name[text] = request.seq
        return text

    def number_of(self, name: str) -> int:
        return self._by_name[name]

    def extra_arguments(self, request: Request) -> dict[str, Any] | None:
        params = self._params.pop(request.seq, None)
        return None if params is None else {"kv_transfer_params": params}

    # Steps ----------------------------------------------------------------------------------------------------------

    def decide(self) -> PairStep:
        """The next step."""
        self._loads = []
        step: ScheduledStep = self.schedule()
        return PairStep(step.chunks, self._loads)

    def start(self) -> None:
        """The worker begins the step."""
        self.runner.bind_connector_metadata(self.under_way[-1].kv_connector_metadata)
        self.runner.start_load_kv(None)
        self.launch()

    def finish(self, sampled: dict[int, int]) -> Reported:
        """The worker says what is over, and the scheduler gets that and the tokens."""
        self.complete(sampled, [], [])
        return self._reported

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        """Ask the worker, then call `update_from_output`."""
        sent, received, failed = self._worker_results(output.finished_req_ids)
        invalid: set[int] = self.runner.get_block_ids_with_load_errors()
        self.runner.clear_connector_metadata()
        lost = {name for name in received if name in failed or not invalid.isdisjoint(self._table(name))}
        transferred = Options(
            finished_sending=sorted(sent),
            finished_recving=sorted(received),
            invalid_block_ids=invalid,
            failed_recving=dict.fromkeys(sorted(failed)).keys() if failed else None,
        )
        names = list(output.num_scheduled_tokens)
        known = self._requests
        results = self.scheduler.update_from_output(
            output,
            Options(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=[Tokens(self._generated(self.number_of(name), sampled)) for name in names],
                prompt_logprobs_dict={},
                prompt_token_id_logprobs_dict={},
                kv_connector_output=transferred,
            ),
        )
        for one in (one for of_client in results.values() for one in of_client.outputs if one.kv_transfer_params):
            self.left[self.number_of(one.request_id)] = one.kv_transfer_params
        over = [seq for seq, request in known.items() if request.is_finished()]
        errors = [seq for seq in over if known[seq].status.name == "FINISHED_ERROR"]
        for seq in over:
            del known[seq]
            self._drop(seq)
        self._reported = Reported(self._numbers(received - lost), self._numbers(lost), errors)

    def _worker_results(self, finished: Any) -> tuple[set[str], set[str], set[str]]:
        """The requests of which all was sent, of which all was received, and those of the latter that failed."""
        if hasattr(self.runner, "get_transfer_results"):
            found = self.runner.get_transfer_results(finished)
            return set(found.finished_sending), set(found.finished_recving), set(found.failed_recving)
        sent, received = self.runner.get_finished(finished)
        return set(sent or ()), set(received or ()), set()

    def _numbers(self, names: set[str]) -> list[int]:
        """The requests that have these names; the worker may have them as plain text."""
        return sorted(map(self.number_of, names))

    def _table(self, name: str) -> list[int]:
        """The blocks of a request."""
        blocks: list[int] = self.scheduler.kv_cache_manager.get_block_ids(name)[0]
        return blocks

    def observe(self) -> Observation:
        """What the manager shows, with the tables of requests that are over and whose blocks a transfer holds."""
        return self._reader.observe()

    # What it shows --------------------------------------------------------------------------------------------------

    def offer(self, request: int) -> Offer | None:
        """What the router got of a request that has ended."""
        params = self.left.get(request)
        if params is None or not params.get("do_remote_prefill"):
            return None
        return Offer(params["remote_num_tokens"], list(params["remote_block_ids"][0]), self.deadlines().get(request))

    def deadlines(self) -> dict[int, float]:
        """When the leases end that the scheduler or the worker keeps."""
        kept = self.connector.connector_scheduler._reqs_need_send, self.runner.connector_worker._reqs_to_send
        return {base_of(name): until - START for leases in kept for name, until in leases.items()}

    def kept(self) -> dict[str, list[str]]:
        """The records of requests that are not empty."""
        parts = (
            ("scheduler", self.scheduler, SCHEDULER_RECORDS),
            ("connector", self.connector.connector_scheduler, CONNECTOR_RECORDS),
            ("worker", self.runner.connector_worker, WORKER_RECORDS),
        )
        found = {}
        for where, part, names in parts:
            for name in names:
                if record := getattr(part, name, None):
                    found[f"{where}: {name}"] = sorted(map(str, record))
        return found

    # In the background ----------------------------------------------------------------------------------------------

    def jobs(self) -> list[str]:
        """The handshakes that were begun, and a round of the writer's thread if it would make one."""
        worker = self.runner.connector_worker
        names = [HANDSHAKE] * len(worker._handshake_initiation_executor.jobs)
        return names + [WRITER] * (self._pushes and self._is_writer_awake())

    def _is_writer_awake(self) -> bool:
        """Whether it was woken; or polls, and would find a notification."""
        worker = self.runner.connector_worker
        polls = bool(worker._push_finished_blocks)
        return worker._push_writer_wake.is_raised or (polls and bool(self._wire.inboxes[self.side]))

    def work(self, job: int, fails: bool) -> None:
        """Do one of its jobs. A round of the writer cannot fail."""
        worker = self.runner.connector_worker
        executor = worker._handshake_initiation_executor
        if job < len(executor.jobs):
            executor.run(job, fails)
            return
        worker._push_writer_wake.is_raised = False
        worker._push_writer_stop.begin()
        worker._push_writer_thread.target()
