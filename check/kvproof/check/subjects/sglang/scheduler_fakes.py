"""Stand-ins around SGLang's scheduler: settings, a model that is not there, times, and where outputs go.

Each has what the scheduler asks for on the paths that are driven, and nothing else: a name that is missing fails.
"""

from collections.abc import Sequence
from typing import Any

from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing

VOCABULARY = 1 << 62
PASSED_ON = ("set_", "observe_", "compute_")  # how the names of those methods begin by which times are noted


class Times:
    """The times of a request, which nobody reads but the order of the waiting requests: a clock that counts."""

    trace_ctx = StubObject(abort=nothing)
    prefill_retry_count = 0
    clock = 0

    def __init__(self, **options: Any) -> None:
        self.wait_queue_entry_time = 0

    def set_wait_queue_entry_time(self) -> None:
        Times.clock += 1
        self.wait_queue_entry_time = Times.clock

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(PASSED_ON):
            raise AttributeError(name)
        return nothing


class AbortReq:
    """The message by which a user leaves, or learns that a request was aborted."""

    def __init__(self, rid: str = "", abort_all: bool = False, **others: Any) -> None:
        self.rid, self.abort_all = rid, abort_all
        self.abort_message = self.finished_reason = None


class NoLogprobs:
    """What computes the probabilities of tokens, for which nobody asks."""

    def __init__(self, **options: Any) -> None:
        """There are no options."""


class Sampling:
    """What a batch knows of how its requests are sampled: no penalties, no grammar."""

    penalizer_orchestrator = StubObject(is_required=False)
    grammars = None

    @staticmethod
    def from_schedule_batch(batch: Any, vocabulary: int) -> "Sampling":
        return Sampling()

    def filter_batch(self, kept: Any, kept_on_device: Any) -> None:
        """Nothing is kept for each request."""

    def merge_batch(self, other: Any) -> None:
        """Nothing is kept for each request."""

    def copy_for_forward(self) -> "Sampling":
        return self


class Outputs:
    """Where the scheduler sends what users get. ended: the names of requests that are reported as aborted."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def stream_output(self, requests: Sequence[Any], return_logprob: bool, skip_req: Any = None) -> None:
        """The tokens of these requests but `skip_req`; the end of a request is sent once, with its last output."""
        for request in requests:
            if request is not skip_req and request.finished() and request.finished_output is None:
                request.finished_output = True
                if request.finished_reason.to_json()["type"] == "abort":
                    self.ended.append(request.rid)

    def send_output(self, message: Any, request: Any = None) -> None:
        """A message outside the stream: here that a request was aborted."""
        self.ended.append(message.rid)


def sampling_of(max_new_tokens: int) -> StubObject:
    """The sampling parameters of a request: greedy, and it ends with the tokens that end a text."""
    return StubObject(
        max_new_tokens=max_new_tokens,
        min_new_tokens=0,
        ignore_eos=False,
        n=1,
        custom_params=None,
        stop_strs=(),
        stop_regex_strs=(),
        stop_token_ids=(),
        logit_bias=None,
        beam_width=None,
    )


class Result:
    """What a model returns for a batch: one token for each request, and nothing that was not asked for."""

    num_correct_drafts_per_req_cpu = None
    num_correct_drafts = 0
    next_draft_input = auxiliary_host_output = copy_done = indexer_topk_output = logits_output = (
        routed_experts_output
    ) = None
    extend_input_len_per_req = extend_logprob_start_len_per_req = None
    can_run_cuda_graph = grammar_advanced = skipped_output_comm = False

    def __init__(self, tokens: Any) -> None:
        self.next_token_ids = tokens

    def get_num_generated_tokens(self, num_requests: int) -> int:
        return num_requests


class NoSpeculation:
    """The algorithm that proposes drafts: there is none, so it is none of those that the engine knows."""

    build_disagg_draft_input = staticmethod(nothing)

    def is_none(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("is_", "supports_", "carries_")):
            raise AttributeError(name)
        return no


class Figures:
    """Figures about the steps, which nobody reads."""

    num_retracted_reqs = num_generated_tokens = forward_ct_decode = 0
    enable_metrics = current_scheduler_metrics_enabled = False
    report_prefill_stats = report_decode_stats = staticmethod(nothing)
