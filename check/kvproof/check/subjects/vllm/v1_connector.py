"""A KV connector of ours for vLLM's V1 scheduler: it loads and sends what the judge says."""

from typing import Any

from kvproof.check.protocol.scheduler import Load
from kvproof.check.subjects.loading.stub_modules import no, nothing
from kvproof.check.subjects.vllm.v1_scheduler_loader import SupportsHMA


class Connector(SupportsHMA):
    """What the scheduler asks of a connector (`KVConnectorBase_V1`, scheduler side); sequences by their numbers.

    It plays a connector that loads and sends asynchronously, and knows only what the judge says: how much KV of a
    request there is elsewhere, and which requests are to be sent when they have ended by themselves. The scheduler must
    hold the blocks until it learns that the transfer is over.
    """

    requires_kv_delivery = False
    supports_divergent_local_hybrid_hits = False

    def __init__(self, sends_aborted: bool) -> None:
        self.sends_aborted = sends_aborted
        self.num_elsewhere: dict[int, int] = {}
        self.sent: set[int] = set()  # those that are to be sent
        self.loads: list[Load] = []  # begun in the step that is being scheduled

    def taken_loads(self) -> list[Load]:
        """The loads begun since the last call."""
        loads, self.loads = self.loads, []
        return loads

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """How many tokens more than those found here can be loaded, and that they come later.

        Nothing for a prompt of one token: the scheduler computes the last token again, and would take a request of
        which all tokens but none are computed for one that was never looked up, and load it for ever.
        """
        if request.num_tokens < 2:
            return 0, False
        num_tokens = max(0, self.num_elsewhere.get(int(request.request_id), 0) - num_computed_tokens)
        return num_tokens, num_tokens > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """A load begins: the request has its blocks."""
        if num_external_tokens:
            seq = int(request.request_id)
            stop = self.num_elsewhere[seq]
            self.loads.append(Load(seq, stop - num_external_tokens, stop))

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """Whether the blocks of a request that is over are still being sent; of an aborted one only if it is saved."""
        has_ended = request.status.name in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")
        is_saved = self.sends_aborted and bool(block_ids)
        return (has_ended or is_saved) and int(request.request_id) in self.sent, None

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        """The same, with the blocks of each group, which `request_finished` only counts."""
        return self.request_finished(request, [block for ids in block_ids for block in ids])

    # The judge reports the transfers: there is no worker's side, and there are no figures and no events.
    bind_gpu_block_pool = bind_kv_cache_manager = on_new_request = build_connector_meta = update_connector_output = (
        staticmethod(nothing)
    )
    get_external_cache_hit_sources = get_kv_connector_stats = staticmethod(nothing)
    get_loaded_kv_cache_group_ids = take_events = staticmethod(lambda *request: ())
    has_pending_block_frees = staticmethod(no)  # what is being sent may be held for long: that is no reason to wait
