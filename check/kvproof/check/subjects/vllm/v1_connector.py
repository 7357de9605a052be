"""A KV connector of ours for vLLM's V1 scheduler: it loads and sends what the judge says."""

from collections.abc import Callable
from typing import Any

from kvproof.check.protocol.scheduler import Load
from kvproof.check.subjects.loading.stub_modules import no, nothing
from kvproof.check.subjects.vllm.v1_scheduler_loader import SupportsHMA, yes


class Connector(SupportsHMA):
    """What the scheduler asks of a connector (`KVConnectorBase_V1`, scheduler side); sequences by their numbers.

    It plays a connector that loads and sends asynchronously, and knows only what the judge says: how much KV of a
    request there is elsewhere, and which requests are to be sent when they have ended by themselves. The scheduler must
    hold the blocks until it learns that the transfer is over. loads_in_step: it loads within the step that lets a
    request in. A load that failed is tried again if the request is looked up again.
    """

    requires_kv_delivery = False
    supports_divergent_local_hybrid_hits = False

    def __init__(self, sends_aborted: bool, loads_in_step: bool, block_size: int) -> None:
        self.sends_aborted, self.loads_in_step, self.block_size = sends_aborted, loads_in_step, block_size
        self.failed: dict[int, list[int]] = {}  # by sequence: blocks that its load did not fill; none: all
        self.blocks: dict[int, list[int]] = {}  # by sequence: those that its newest load fills
        self.blocks_of: Callable[[str], Any] = no  # a request, by its name
        self._num_found: dict[int, int] = {}  # by sequence: tokens that the last look-up found, here and elsewhere
        self.num_elsewhere: dict[int, int] = {}
        self.sent: set[int] = set()  # those that are to be sent
        self.loads: list[Load] = []  # begun in the step that is being scheduled
        self.sends: list[str] = []  # begun since the last step was scheduled
        self.given_up: set[int] | None = None  # what it has loaded and has no longer; None: it gives up nothing

    def taken_loads(self) -> list[Load]:
        """The loads begun since the last call."""
        loads, self.loads = self.loads, []
        return loads

    def taken_sends(self) -> list[str]:
        """The requests whose sending began since the last call."""
        sends, self.sends = self.sends, []
        return sends

    def taken_failures(self, reports_requests: bool, is_whole: bool) -> dict[str, Any]:
        """The blocks that were not filled, and the requests of which nothing was loaded, since the last call.

        reports_requests: whether the release takes requests; it does so for loads that last. is_whole: whether all are
        reported as requests, which vLLM demands of models with several KV cache groups from 0.31 on.
        """
        failed, self.failed = self.failed, {}
        invalid, wholly = set[int](), set[str]()
        for seq, blocks in failed.items():
            if reports_requests and not self.loads_in_step and (is_whole or not blocks):
                wholly.add(str(seq))
            else:
                invalid.update(blocks or self.blocks[seq])
        return {"invalid_block_ids": invalid, "failed_recving": wholly}

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """How many tokens more than those found here can be loaded, and that they come later.

        Nothing for a prompt of one token: the scheduler computes the last token again, and would take a request of
        which all tokens but none are computed for one that was never looked up, and load it for ever. If the load
        happens within the step, a token is left for the step to compute, as vLLM's connectors leave one.
        """
        if request.num_tokens < 2:
            return 0, False
        seq, size = int(request.request_id), self.block_size
        most = (request.num_tokens - 1) // size * size if self.loads_in_step else request.num_tokens
        num_here = 0 if self.given_up and seq in self.given_up else self.num_elsewhere.get(seq, 0)
        self._num_found[seq] = min(num_here, most)
        num_tokens = max(0, self._num_found[seq] - num_computed_tokens)
        return num_tokens, num_tokens > 0 and not self.loads_in_step

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """A load begins: the request has its blocks."""
        if num_external_tokens:
            seq = int(request.request_id)
            stop = self._num_found[seq]
            start = stop - num_external_tokens
            self.loads.append(Load(seq, start, stop))
            if self.given_up is not None:
                self.given_up.add(seq)
            first, last = start // self.block_size, -(-stop // self.block_size)
            self.blocks[seq] = [block for ids in blocks.get_block_ids() for block in ids[first:last]]

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """Whether the KV of a request that is over is sent: of an aborted one if it is saved, of none that failed."""
        has_ended = request.status.name in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")
        has_blocks = bool(block_ids or self.blocks_of(request.request_id))  # after a failed load it gets no ids
        is_saved = self.sends_aborted and has_blocks and request.status.name != "FINISHED_ERROR"
        is_sent = (has_ended or is_saved) and int(request.request_id) in self.sent
        self.sends += [request.request_id] if is_sent else []
        return is_sent, None

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        """The same, with the blocks of each group, which `request_finished` only counts."""
        return self.request_finished(request, [block for ids in block_ids for block in ids])

    # The judge reports the transfers: there is no worker's side, and there are no figures and no events.
    bind_gpu_block_pool = bind_kv_cache_manager = on_new_request = build_connector_meta = update_connector_output = (
        staticmethod(nothing)
    )
    get_external_cache_hit_sources = get_kv_connector_stats = staticmethod(nothing)
    reset_cache = staticmethod(yes)  # what is elsewhere stays there
    get_loaded_kv_cache_group_ids = take_events = staticmethod(lambda *request: ())
    has_pending_block_frees = staticmethod(no)  # what is being sent may be held for long: that is no reason to wait
