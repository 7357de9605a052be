"""One engine of a pair: vLLM's V1 scheduler, and its NIXL connector on the sides of the scheduler and of the worker.

This is `VllmV1Scheduler` with a connector of the release in place of ours. A step calls the worker as vLLM's model
runner does: it binds the metadata that the scheduler made, starts transfers, and after the step asks what is over.

Names. vLLM gives a request the same name on both sides, each with a random suffix, and in push mode PREFILL finds by it
what DECODE registers. Here the name of a request with an offer is the number of the offered request, and its own number
as the suffix.
"""

from typing import Any

from kvproof.check.protocol.manager import Observation
from kvproof.check.protocol.pair import Offer, PairConfig, PairLoad, PairStep, Reported
from kvproof.check.protocol.scheduler import ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request
from kvproof.check.protocol.wire import Wire
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.vllm.pd_agent import CURRENT, HEX_DIGITS, START, base_of
from kvproof.check.subjects.vllm.pd_workers import Workers, groups_of_rank
from kvproof.check.subjects.vllm.v1_scheduler import Tokens, VllmV1Scheduler
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options
from kvproof.spec.text.identity import Key
from kvproof.spec.text.loads import FAIL

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
        self.side, self._config, self._pushes = side, config, pushes
        self.workers = Workers(self._given, side, config, wire, pushes=pushes)
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
        self._spoilt: set[str] = set()  # requests of which a rank has reported blocks without KV, until all have
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
        """What the connector reads too: the ranks, and the heads of one layer."""
        options, pair = super()._options(config), self._config
        options.scheduler_config.disable_hybrid_kv_cache_manager = False
        num_ranks, is_latent = pair.num_ranks(self.side), not pair.num_heads
        vars(options.parallel_config).update(
            tensor_parallel_size=num_ranks,
            world_size=num_ranks,
            prefill_context_parallel_size=1,
            decode_context_parallel_size=1,
            data_parallel_index=self.side,  # so that each has a port of its own
        )
        vars(options.model_config).update(
            use_mla=is_latent,
            is_deepseek_mla=is_latent,
            enable_sleep_mode=False,
            model="model",
            dtype="float16",
            get_total_num_kv_heads=lambda: max(1, pair.num_heads),
            get_num_kv_heads=lambda *parallel: len(pair.heads(self.side, 0)),
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
        """Make both sides of the connector, and let each worker's register its memory."""
        CURRENT.side = self.side
        connectors, role = self._modules.nixl.connector, self._modules.role
        kind = connectors.NixlPushConnector if self._pushes else connectors.NixlPullConnector
        pair = self._config
        own = groups_of_rank(self._modules.interface, groups, pair.num_heads, pair.heads(self.side, 0))
        self.connector = options.kv_transfer_config.connector = kind(options, role.SCHEDULER, own)
        self._watch()
        self.workers.begin(lambda own: kind(options, role.WORKER, own), self.connector, groups)

    def shake_hands(self, other: "Side") -> BaseException | None:
        """Let each worker learn at once where the memory of another side is; what one of them cannot work with."""
        there = other.connector.connector_scheduler
        address = there.side_channel_host, there.side_channel_port
        return self.workers.handshake(there.engine_id, *address, len(other.workers.ranks))

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
        """The workers begin the step."""
        self.workers.start(self.under_way[-1].kv_connector_metadata)
        self.launch()

    def finish(self, sampled: dict[int, int]) -> Reported:
        """The worker says what is over, and the scheduler gets that and the tokens."""
        self.complete(sampled, [], [])
        return self._reported

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        """Ask the workers, then call `update_from_output`."""
        sent, received, failed, invalid = self.workers.results(output.finished_req_ids)
        if invalid:
            self._spoilt |= {name for name in self.scheduler.requests if not invalid.isdisjoint(self._table(name))}
        lost = {name for name in received if name in failed or name in self._spoilt}
        self._spoilt &= self.scheduler.requests.keys() - received
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
        ends = self.deadlines().get(request)
        if isinstance(ends, list):
            ends = max((end for end in ends if end is not None), default=None)
        return Offer(params["remote_num_tokens"], list(params["remote_block_ids"][0]), ends)

    def deadlines(self) -> dict[int, float | list[float | None]]:
        """When the leases end that the scheduler or the workers keep; a rank that keeps none says nothing."""
        found: dict[int, float | list[float | None]] = {}
        for name, until in self.connector.connector_scheduler._reqs_need_send.items():
            found[base_of(name)] = until - START
        kept = [worker._reqs_to_send for worker in self.workers.workers]
        for name in {name for leases in kept for name in leases}:
            times = [leases[name] - START if name in leases else None for leases in kept]
            found[base_of(name)] = times if len(times) > 1 or times[0] is None else times[0]
        return found

    def kept(self) -> dict[str, list[str]]:
        """The records of requests that are not empty."""
        parts = (
            ("scheduler", self.scheduler, SCHEDULER_RECORDS),
            ("connector", self.connector.connector_scheduler, CONNECTOR_RECORDS),
        )
        named = [(f"{where}: {name}", getattr(part, name, None)) for where, part, names in parts for name in names]
        return {name: sorted(map(str, record)) for name, record in (*named, *self.workers.kept()) if record}
