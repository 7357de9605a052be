"""vLLM's own V1 scheduler around its KV cache manager, as a subject: releases 0.11 to 0.33.

The adapter plays vLLM's engine core. It adds requests, reports the steps of `schedule` to kvproof, which executes them,
and gives the results back with `update_from_output`. If another step may be under way, vLLM's own `AsyncScheduler`
schedules. An engine of one device has two batches; two steps ahead are those of a pipeline, of three stages with the
first generation of the model runner, and of two with the second one, which leaves a request out of the next step. The
scheduler ends requests by itself; to end one for the judge, the adapter makes the sampled token a stop token of it.

The engine core takes aborts between steps only; one that comes within a step is carried out when the step is complete,
or, scheduling asynchronously, when it is launched. Steps run on the device one after another, so that a block given up
while a step writes to it may be given away at once.

With transfers the scheduler has a KV connector of ours (`Connector`); with a connector of its own,
`offloading_connector` drives it.

Drafts are those of a draft model that has no KV of its own (as n-grams), and from 0.23 on also of one that needs slots
(`lookahead`), as EAGLE, which drops the last block that is found (`drafting`). With asynchronous scheduling they are on
the device, and vLLM schedules placeholders for them.

Limits: one sequence for each request, no images; KV cache groups of full attention, of one sliding window, of local
attention in chunks of one size, or of states (from 0.15 on); transfers with windows or several groups from 0.18 on,
with states in a prefix cache from 0.23 on; drafts without states and without blocks of different sizes.
"""

import inspect
from dataclasses import replace
from math import gcd
from typing import Any

from kvproof.check.protocol.block_events import BlockEvent
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Assumption, Observation, Unsupported
from kvproof.check.protocol.scheduler import ABORTED, FAILED, Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.subjects.vllm.offloading_connector import HostConnector, OffloadingConnector
from kvproof.check.subjects.vllm.v1_connector import Connector
from kvproof.check.subjects.vllm.v1_drafts import (
    PIPELINED,
    blocks_of_drafts,
    require_slots_of_drafts,
)
from kvproof.check.subjects.vllm.v1_events import (
    REPORT_MODE,
    REPORTED,
    Publisher,
    block_events,
    groups_that_keep_all,
    names_of,
    reports_groups,
    require_events,
)
from kvproof.check.subjects.vllm.v1_fakes import Adapter, FakeRequest
from kvproof.check.subjects.vllm.v1_loader import hasher_of
from kvproof.check.subjects.vllm.v1_multi_connector import TwoConnectors, import_multi_connector
from kvproof.check.subjects.vllm.v1_observation import (
    HEAD_SIZE,
    ManagerReader,
    cache_config,
    call_with,
    has_retention,
    state_size,
    with_groups,
)
from kvproof.check.subjects.vllm.v1_options import blocks_for_one, options_of
from kvproof.check.subjects.vllm.v1_scheduler_loader import NoStructure, Options, import_modules, import_offloading
from kvproof.check.subjects.vllm.v1_states import check_states, cuts_at_states, loads_groups
from kvproof.spec.text.budgets import FCFS, PAUSED_ALL, PAUSED_NEW, PRIORITY
from kvproof.spec.text.eviction_policy import SEQUENCE_LRU
from kvproof.spec.text.identity import Image, Key
from kvproof.spec.text.loads import FAIL, LOAD_FAILURE_POLICIES, RECOMPUTE

ASSUMPTIONS = (
    Assumption("steps-in-order", "The device starts no step before the one before has ended."),
    Assumption("aborts-between-steps", "A request aborted within a step is given up when it is complete, or launched."),
    Assumption("model-fits", "The pool holds one sequence of max_model_len, as the engine demands when it starts."),
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
    Assumption("loads-leave-a-token", "A load within a step leaves at least the last token of the prompt to compute."),
    Assumption("sessions-fit", "The inputs of a session, and what it generates, are shorter than the model's length."),
    Assumption("adapter-ids", "Two adapters never have the same id; their names may be equal."),
)


LOOKS_AHEAD = "limit_lookahead_tokens"  # in the source, if a prompt gets lookahead slots with its first step
OFFLOADING = "offloading"  # the connector that stores what requests computed in host memory
PAUSE_STATES = {"": "UNPAUSED", PAUSED_NEW: "PAUSED_NEW", PAUSED_ALL: "PAUSED_ALL"}
END_OF = {"FINISHED_ABORTED": ABORTED, "FINISHED_ERROR": FAILED}


# What a subject switches off that drives the scheduler with one KV group, and without our connector and drafts.
ONE_GROUP: dict[str, Any] = {
    "transfers": False,
    "hybrid_transfers": False,
    "loads_in_step": False,
    "repeated_reports": False,
    "load_failures": (),
    "sends_aborted": False,
    "speculative_tokens": 0,
    "lookahead": False,
    "drafting": False,
    "local_attention": False,
    "kv_groups": False,
    "states": False,
    "block_sizes": False,
}


class Tokens(list[int]):
    """Sampled tokens; in 0.11.1 they are an array."""

    def tolist(self) -> list[int]:
        return list(self)


class VllmV1Scheduler(SchedulerAdapter):
    """`vllm.v1.core.sched.scheduler.Scheduler`."""

    capabilities = Capabilities(
        has_admission_query=False,
        window=True,
        caching=True,
        chunked=True,
        adapters=True,
        salts=True,
        window_drop_when_refused=True,
        same_step_hits=True,
        window_with_caching=True,
        local_attention=True,
        hash_seeds=True,
        kv_groups=True,
        steps_in_order=True,
        transfers=True,
        loads_in_step=True,
        repeated_reports=True,
        eviction=SEQUENCE_LRU,
        num_overtaken_max=0,
        policies=(FCFS, PRIORITY),
        long_prefills=True,
        fills_steps=True,
        begins_prompts=True,
        serves_running=True,
        preempts_last=True,
        lost_hits=0,
        refusal_slack=0,
        reports_ends=True,
        reports_tokens=True,
        sends_aborted=True,
        holds_longest=True,
        max_loras=True,
        speculative_tokens=4,
    )
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS
    head_size = HEAD_SIZE
    own_connectors: tuple[str, ...] = (OFFLOADING,)  # of vLLM, to host memory

    def __init__(self, version: str) -> None:
        self.name = f"vllm-v1-scheduler {version}"
        self._modules = modules = self.import_modules(version)
        source, ahead = inspect.getsource(modules.scheduler), inspect.getsource(modules.ahead)
        policies = LOAD_FAILURE_POLICIES if "kv_load_failure_policy" in source else (RECOMPUTE,)
        options = inspect.signature(modules.scheduler.Scheduler).parameters
        self._cuts_at_states = cuts_at_states(modules.scheduler)
        self.capabilities = replace(
            self.capabilities,
            connectors=() if self._offloading is None else self.own_connectors,
            hybrid_connectors=self._offloading is not None and loads_groups(modules.scheduler),
            hybrid_transfers=loads_groups(modules.scheduler),
            load_failures=policies if "invalid_block_ids" in source else (),
            retention=has_retention(modules.interface),
            states=bool(self._cuts_at_states),
            block_sizes=bool(self._cuts_at_states) and "hash_block_size" in options,
            block_events=reports_groups(),
            sessions="streaming_queue" in source,
            pauses=hasattr(modules.scheduler, "PauseState"),
            reset="reset_running_requests" in source,
            async_steps=PIPELINED if "use_pp and not self.scheduler_config.async" in source else 1,
            staggers="next_decode_eligible" in ahead,
            lookahead=LOOKS_AHEAD in source,
            drafting=LOOKS_AHEAD in source,
        )
        self._resets_connector = "reset_connector: bool" in source
        self._drafts_ahead = "num_spec_tokens" in ahead
        self._reports_requests = "kv_connector_output.failed_recving" in source  # of which nothing was loaded
        self._takes_blocks = "failed_recving instead" not in source  # of loads for several groups that failed
        self._reports_hits = REPORT_MODE in inspect.getsource(modules.request)

    def import_modules(self, version: str) -> Any:
        """The modules of the release, and of those of its own connectors that can be driven here."""
        modules = import_modules(version)
        self._offloading, self._multi = import_offloading(), import_multi_connector()
        return modules

    def make(self, config: SchedulerConfig) -> Any:
        if not config.chunked and config.max_num_batched_tokens < config.max_model_len:
            raise Unsupported("without chunked prompts, a step has room for one of max_model_len")
        if config.connector and config.events:
            raise Unsupported("a connector to host memory reports events of its own")
        require_events(config, self._reports_hits)
        num_rows = 1 + config.speculative_tokens  # of a decode
        if config.max_num_batched_tokens < num_rows:
            raise Unsupported("a step has a token for each draft of a sequence, and one more")
        if config.speculative_tokens and 0 < config.long_prefill_threshold < num_rows:
            raise Unsupported("a long prefill that is shorter than a decode with drafts ends the engine")
        if config.speculative_tokens and config.async_steps and not self._drafts_ahead:
            raise Unsupported("asynchronous scheduling has no drafts in this release")
        require_slots_of_drafts(config)
        if config.has_states:
            check_states(self._cuts_at_states, config)
        # The engine takes prompts that are shorter than its length; the judge those of at most its own.
        self._length = config.max_model_len + 1
        how = config.sends_aborted, config.loads_in_step, config.block_size
        self._connector = Connector(*how)
        has_two = config.repeated_reports and self._multi is not None
        self._two = TwoConnectors(self._multi, self._connector, Connector(*how)) if has_two else None
        self._elsewhere: dict[int, tuple[int, bool]] = {}  # by request, until it is added
        self._arrived: tuple[list[int], list[int]] = [], []
        self._priorities: dict[int, int] = {}  # by request, until it is added
        self._sessions = set[int]()  # requests that go on with further inputs
        self._accepted: dict[int, list[int]] = {}  # by sequence, for the next `update_from_output`
        options, groups = self._options(config), cache_config(self._modules.interface, config, self.head_size)
        self._offloads: HostConnector | None = None
        self.connect(config, options, groups)
        self._copied: list[int] = []
        if blocks_for_one(options, groups) > config.num_gpu_blocks - 1:
            raise Unsupported("the longest sequence does not fit the pool")
        if config.transfers and blocks_for_one(options, groups) + blocks_of_drafts(config) > config.num_gpu_blocks - 1:
            raise Unsupported("a load waits for ever where the pool lacks the blocks of a step with drafts beside it")
        hash_size, is_in_place = gcd(*config.block_sizes), config.has_states and not config.caching
        wanted = {
            "vllm_config": options,
            "kv_cache_config": groups,
            "structured_output_manager": NoStructure(),
            "block_size": state_size(config) if is_in_place else config.block_size,
            "hash_block_size": hash_size,
        }
        modules = self._modules
        kind = modules.ahead.AsyncScheduler if config.async_steps else modules.scheduler.Scheduler
        takes = inspect.signature(modules.scheduler.Scheduler).parameters
        taken = {name: value for name, value in wanted.items() if name in takes}
        scheduler = with_groups(lambda: kind(**taken))
        if getattr(getattr(scheduler.kv_cache_manager, "coordinator", None), "enable_partial_hash_hits", False):
            raise Unsupported("hits that end within the block of a state")
        self._reader = ManagerReader(scheduler.kv_cache_manager, self.number_of)
        scheduler.kv_event_publisher = self._publisher = Publisher()
        blocks_of = scheduler.kv_cache_manager.get_block_ids
        self._connector.blocks_of = lambda name: any(blocks_of(name))
        self._hasher = hasher_of(modules.utils, config, hash_size)
        self._requests: dict[int, Any] = {}  # by sequence
        return scheduler

    def connect(self, config: SchedulerConfig, options: Options, groups: Any) -> None:
        """Give the scheduler a connector of its own, if the configuration has one."""
        if config.connector and self._offloading is not None:
            self._offloads = self.host_connector(self._offloading, config, options, groups)
            options.kv_transfer_config.connector = self._offloads

    def host_connector(self, modules: Any, config: SchedulerConfig, options: Options, groups: Any) -> HostConnector:
        """The connector of vLLM's own."""
        return OffloadingConnector(modules, config, options, groups)

    def _options(self, config: SchedulerConfig) -> Options:
        """What the scheduler reads of vLLM's configuration."""
        return options_of(config, self._length, self._transfers(config))

    def _transfers(self, config: SchedulerConfig) -> Options | None:
        if not (config.transfers or config.connector):
            return None
        return Options(
            connector=self._two.connector if self._two else self._connector,
            kv_load_failure_policy=config.load_failures or RECOMPUTE,
            is_kv_consumer=True,
            is_kv_producer=True,
        )

    def elsewhere(self, request: int, num_tokens: int, is_sent: bool) -> None:
        """Keep for the connector until the request is added."""
        self._elsewhere[request] = num_tokens, is_sent

    def prioritize(self, request: int, priority: int) -> None:
        """Keep until the request is added."""
        self._priorities[request] = priority

    def accepted(self, drafts: dict[int, list[int]]) -> None:
        """Keep for the next `update_from_output`."""
        self._accepted = drafts

    def propose(self, drafts: dict[int, list[int]]) -> None:
        """The engine core gives the drafts of all sequences to the scheduler after each step."""
        names = [str(seq) for seq in drafts]
        self.scheduler.update_draft_token_ids(Options(req_ids=names, draft_token_ids=[*drafts.values()]))

    def copied(self, jobs: list[int]) -> None:
        """Keep for the next `update_from_output`."""
        self._copied = jobs

    def reset_caches(self, preempts: bool, keeps_host: bool = False) -> bool:
        """Resets of a connector to host memory are calls of their own, whose answers are not those of the device."""
        options = {"reset_running_requests": preempts}
        if self._resets_connector and not (self._offloads or keeps_host):
            options["reset_connector"] = True  # as a pause does
        done: bool = self.scheduler.reset_prefix_cache(**options)
        if self._offloads and not keeps_host:
            self.scheduler.reset_connector_cache()
        return done

    def open_session(self, request: int) -> None:
        self._sessions.add(request)

    def feed(self, request: int, tokens: list[int], max_tokens: int) -> None:
        """An input is a request of the same name."""
        if (known := self.requests.get(request)) is not None:  # else its prompt is too long
            self.scheduler.add_request(self._made(replace(known, tokens=tokens, max_tokens=max_tokens)))

    def close(self, request: int) -> None:
        self._sessions.discard(request)
        if (known := self.requests.get(request)) is None:
            return
        self.scheduler.add_request(self._made(replace(known, tokens=[0], max_tokens=1)))
        if self._requests[known.seq].is_finished():  # it waited for an input
            del self._requests[known.seq]
            self._drop(request)

    def goes_on(self, seq: int) -> bool:
        return seq in self._requests

    def pause(self, state: str) -> None:
        self.scheduler.set_pause_state(self._modules.scheduler.PauseState[PAUSE_STATES[state]])

    def arrived(self, sent: list[int], received: list[int]) -> None:
        """Keep for the next `update_from_output`."""
        self._arrived = sent, received

    def being_sent(self) -> dict[int, list[list[int]]]:
        return {seq: tables for seq, tables in self._reader.observe().tables.items() if seq not in self._requests}

    def loads_failed(self, failed: dict[int, list[int]]) -> None:
        """Keep for the next `update_from_output`."""
        self._connector.failed = failed

    def add(self, request: Request) -> None:
        self._requests[request.seq] = self._made(request)
        num_tokens, is_sent = self._elsewhere.pop(request.number, (0, False))
        self._connector.num_elsewhere[request.seq] = num_tokens
        if is_sent:
            self._connector.sent.add(request.seq)
        self.scheduler.add_request(self._requests[request.seq])

    def _made(self, request: Request) -> Any:
        """The request as vLLM has it."""
        wanted = {
            "request_id": self.name_of(request),
            "prompt_token_ids": request.tokens,
            "sampling_params": Options(
                max_tokens=request.max_tokens,
                min_tokens=0,
                stop_token_ids=[],
                extra_args=self.extra_arguments(request),
            ),
            "pooling_params": None,
            "eos_token_id": None,
            "arrival_time": float(request.number),
            "priority": self._priorities.pop(request.number, 0),
            "resumable": request.number in self._sessions,
            "mm_features": self.features(request.images),
            "lora_request": Adapter(request.key) if request.key.adapter_id else None,
            "cache_salt": request.key.salt,
            "block_hasher": self._hasher if self.config.caching or self.config.connector else None,
        }
        return call_with(self._modules.request.Request, wanted)

    def name_of(self, request: Request) -> str:
        """The engine's name of a request."""
        return str(request.seq)

    def number_of(self, name: str) -> int:
        """The sequence of the request that has this name."""
        return int(name)

    def extra_arguments(self, request: Request) -> dict[str, Any] | None:
        """What the user of a request sends with it."""
        return {REPORT_MODE: REPORTED[self.config.events]} if self.config.events else None

    def features(self, images: tuple[Image, ...]) -> list[Any]:
        """The images of a request, as vLLM has them; there are none."""
        return []

    def takes_aborts(self) -> bool:
        """Between steps; with asynchronous scheduling, also while the newest step is being executed."""
        return not self.under_way or (self.config.async_steps > 0 and self.is_launched)

    def cancel(self, request: Request) -> None:
        ended = self._requests.pop(request.seq)
        self.scheduler.finish_requests(ended.request_id, self._modules.request.RequestStatus.FINISHED_ABORTED)
        self.ends[request.number] = END_OF.get(ended.status.name, ended.status.name)

    def next_step(self) -> tuple[Any, ScheduledStep]:
        running = {request.request_id for request in self.scheduler.running}
        output = self.scheduler.schedule()
        two = self._two
        begun = two.began(output.kv_connector_metadata.extra_async_saves) if two else self._connector.taken_loads()
        loads = {load.seq: load for load in begun}
        chunks = []
        for name, num_tokens in output.num_scheduled_tokens.items():
            seq = self.number_of(name)
            stop = self._requests[seq].num_computed_tokens  # advanced already
            start = stop - num_tokens
            found = loads[seq].hit if seq in loads else start
            chunks.append(Chunk(seq, start, stop, 0 if name in running else found))
        if self._offloads is not None:
            copies, stores, flushes = self._offloads.taken()
            return output, ScheduledStep(chunks, loads=copies, stores=stores, flushes=flushes)
        drafts = [(int(name), tokens) for name, tokens in output.scheduled_spec_decode_tokens.items()]
        return output, ScheduledStep(chunks, loads=begun, drafts=drafts)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        """Call `update_from_output`; the sampled token of a sequence that is over is made a stop token."""
        names = list(output.num_scheduled_tokens)
        for seq in finished:
            self._requests[seq].sampling_params.stop_token_ids = [sampled[seq]]
        sent, received = ([str(seq) for seq in seqs] for seqs in self._arrived)
        self._arrived = [], []
        failed: dict[str, Any] = {}
        if self._connector.failed:
            is_whole = len(self.config.kv_groups) > 1 and not self._takes_blocks
            failed = self._connector.taken_failures(self._reports_requests, is_whole)
        if self._two:
            sent, received, wholly = map(sorted, self._two.over(sent, received, failed.get("failed_recving", ())))
            failed |= {"failed_recving": {*wholly}} if failed else {}
        is_any = sent or received or failed
        transferred = Options(finished_sending=sent, finished_recving=received, **failed) if is_any else None
        if self._offloads is not None and self._copied:
            received, report = self._offloads.over(self._copied)
            transferred = Options(finished_recving=received, kv_connector_worker_meta=report)
            self._copied = []
        results = self.scheduler.update_from_output(
            output,
            Options(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=[Tokens(self._generated(int(n), sampled)) for n in names],
                prompt_logprobs_dict={},
                prompt_token_id_logprobs_dict={},
                kv_connector_output=transferred,
            ),
        )
        for one in (one for of_client in results.values() for one in of_client.outputs if one.new_token_ids):
            self.outputs[int(one.request_id)] = [*one.new_token_ids]
        for seq in finished:
            if self._requests[seq].is_finished():  # else it is a session
                del self._requests[seq]
        if self.config.load_failures == FAIL:
            self._end_failed()

    def _end_failed(self) -> None:
        """Report the requests that vLLM has ended since their KV could not be loaded."""
        for seq, request in [*self._requests.items()]:
            if request.status.name == "FINISHED_ERROR":
                del self._requests[seq]
                number = self.requests_by_seq[seq].number
                self._drop(number)
                self.ends[number] = FAILED

    def _generated(self, seq: int, sampled: dict[int, int]) -> list[int]:
        """What the step generated for a sequence: the drafts that were accepted, and the token sampled after them."""
        return [*self._accepted.get(seq, ()), sampled[seq]] if seq in sampled else []

    def block_events(self) -> list[BlockEvent]:
        """What was published with results, and what waits for the next ones."""
        events = [*self._publisher.taken(), *self.scheduler.kv_cache_manager.take_events()]
        return block_events(events, groups_that_keep_all(self.config))

    def block_names(self, tokens: list[int], key: Key, images: tuple[Image, ...]) -> list[str]:
        return names_of(self._modules.utils, FakeRequest(0, tokens, key, images, self._hasher).block_hashes)

    def observe_part(self, seqs: list[int]) -> Observation:
        return self._reader.observe_part(seq for seq in seqs if seq in self._requests)

    def observe(self) -> Observation:
        """What the manager shows, without the tables of finished requests whose blocks a transfer still holds."""
        found = self._reader.observe()
        for name in [name for name in found.tables if name not in self._requests]:
            del found.tables[name]
        return found
