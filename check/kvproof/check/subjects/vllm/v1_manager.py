"""vLLM's V1 KV cache manager as a subject: releases 0.6.5 to 0.33.

The manager is not asked first: `allocate_slots` gives slots or None. The adapter plays the part of vLLM's scheduler
(`vllm/v1/core/sched/scheduler.py`): a waiting request is looked up, and the blocks found are handed over with the call
that allocates; what a step computes is known to the request when the step is done. What differs between releases is
read off signatures, once, in `Calls`.

KV cache groups are of full attention or of a sliding window, of one width, and have blocks of one size. From 0.9.1 on a
manager has several of them; in older releases, with the prefix cache, just one kind besides full attention.

Limits: no other kinds of attention; no external tokens; no watermark (from 0.30, the scheduler's).
"""

import inspect
from typing import Any

from kvproof.check.protocol.manager import (
    Admission,
    Admitted,
    Assumption,
    Capabilities,
    Config,
    Observation,
    Pair,
    Refused,
    Reserved,
    Scheduled,
    Unsupported,
)
from kvproof.check.subjects.vllm.v1_fakes import ToldRequest
from kvproof.check.subjects.vllm.v1_loader import Release, content_hash, import_release
from kvproof.check.subjects.vllm.v1_observation import Shown, cache_config, with_groups
from kvproof.spec.text.identity import Image, Key

MODEL_LENGTH_MAX = 4096  # tokens; far beyond any run
ASSUMPTIONS = (
    Assumption("found-blocks-at-once", "The blocks that a look-up finds are handed over at once, or not at all."),
    Assumption("one-request-at-a-time", "A request is allocated to once in a step; what is freed is not in the step."),
    Assumption("adapter-ids", "Two adapters never have the same id; their names may be equal."),
    Assumption("image-rows", "An image's name fixes its number of rows; images do not overlap and come in order."),
    Assumption("image-placeholders", "Where an image lies, the token is a placeholder, which no text has."),
    Assumption("lookahead-constant", "The number of lookahead slots is the same in every call."),
    Assumption("write-before-read", "A step writes its KV before it reads: a hit may be computed in the same step."),
    Assumption("synchronous", "A step is over before the next is scheduled; frees come between steps."),
)


class Calls:
    """What differs between releases, by the signatures of a release's manager."""

    def __init__(self, manager: Any) -> None:
        self.options = frozenset(inspect.signature(manager).parameters)
        allocate = inspect.signature(manager.allocate_slots).parameters
        self.takes_found = "new_computed_blocks" in allocate  # from 0.7.3; before, they are the third argument
        self.takes_num_found = "num_new_computed_tokens" in allocate  # from 0.8.3
        self.takes_lookahead = "num_lookahead_tokens" in allocate  # from 0.8.3
        self.appends = hasattr(manager, "append_slots")  # before 0.7.3, for a request that runs
        self.frees_hashes = hasattr(manager, "free_block_hashes")  # 0.8.0 to 0.10
        self.takes_block_ids = hasattr(manager, "take_new_block_ids")  # from 0.17, what a step has to zero
        self.starts_steps = hasattr(manager, "new_step_starts")
        self.resets = hasattr(manager, "reset_prefix_cache")


class VllmV1:
    """`KVCacheManager`."""

    def __init__(self, version: str, release: Release) -> None:
        self.name = f"vllm-v1 {version}"
        self._release = release
        self._class = release.manager.KVCacheManager
        self._calls = calls = Calls(self._class)
        hashed = inspect.getsource(release.utils)
        self._by_config = "kv_cache_config" in calls.options
        self._hashes = hasattr(release.utils, "get_request_block_hasher")
        if hasattr(release.utils, "init_none_hash"):
            release.utils.init_none_hash(content_hash)
        self.capabilities = Capabilities(
            has_admission_query=False,
            window=self._by_config and hasattr(release.interface, "SlidingWindowSpec"),
            caching=True,
            window_with_caching=True,
            lookahead=calls.takes_lookahead,
            chunked=True,
            adapters="lora" in hashed,
            salts="cache_salt" in hashed,
            images="mm_" in hashed,
            reset=calls.resets,
            window_drop_when_refused=True,
            same_step_hits=True,
            kv_groups=self._by_config and hasattr(release.manager, "get_kv_cache_coordinator"),
        )
        self.assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def open(self, config: Config) -> None:
        """Make a new, idle manager. Raises Unsupported."""
        if config.num_host_blocks or config.watermark or config.group_size > 1 or config.cross:
            raise Unsupported("no host blocks, watermark, groups of several sequences or encoder")
        if config.lookahead and not self.capabilities.lookahead:
            raise Unsupported("no lookahead")
        if config.keys > 2 and not self.capabilities.salts:
            raise Unsupported("no salts")
        if config.window and not self.capabilities.window:
            raise Unsupported("no sliding window")
        self._config = config
        wanted = {
            "block_size": config.block_size,
            "hash_block_size": config.block_size,
            "scheduler_block_size": config.block_size,
            "num_gpu_blocks": config.num_gpu_blocks,
            "max_model_len": MODEL_LENGTH_MAX,
            "enable_caching": config.caching,
            "num_preallocate_tokens": 0,
        }
        if self._by_config:
            wanted["kv_cache_config"] = cache_config(self._release.interface, config)
        taken = {name: value for name, value in wanted.items() if name in self._calls.options}
        self._manager = with_groups(lambda: self._class(**taken))
        self._hasher = None
        if self._hashes and config.caching:
            self._hasher = self._release.utils.get_request_block_hasher(config.block_size, content_hash)
        self._shown = Shown(self._manager)
        self._requests: dict[int, ToldRequest] = {}
        self._seq_of: dict[int, int] = {}
        self._live: set[int] = set()

    # The truth, told --------------------------------------------------------------------------------------------

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        """A waiting request."""
        (seq,) = seqs
        self._seq_of[group] = seq
        self._requests[seq] = request = ToldRequest(seq, tokens, key, images, self._hasher)
        request.status = self._status("WAITING")

    def _status(self, name: str) -> Any:
        return getattr(self._release.status, name)

    def new_encoder(self, group: int, seq: int, tokens: list[int]) -> None:
        """Never called: there is no cross-attention."""
        raise NotImplementedError

    def grow(self, seq: int, token: int) -> None:
        """A token was sampled; it has no slot yet."""
        self._requests[seq].append_token(token)

    # Questions --------------------------------------------------------------------------------------------------

    def hits(self, group: int) -> int:
        """Tokens of a waiting request that the prefix cache holds, in whole blocks."""
        return self._found(self._requests[self._seq_of[group]])[1]

    def _found(self, request: ToldRequest) -> tuple[Any, int]:
        """What a look-up finds: blocks, and how many tokens are in them; one token at least is left to compute."""
        if not self._config.caching:
            return None, 0
        answer = self._manager.get_computed_blocks(request)
        if isinstance(answer, tuple):
            blocks, num_tokens = answer[0], int(answer[1])
        else:
            blocks, num_tokens = answer, len(answer) * self._config.block_size
        if num_tokens >= request.num_tokens:  # before 0.8, the scheduler's to see
            blocks, num_tokens = blocks[:-1], num_tokens - self._config.block_size
        return blocks, num_tokens

    def forget(self, group: int) -> None:
        """The request was looked up, and not admitted: it is looked up anew the next time."""

    def can_admit(self, group: int) -> Admission:
        """Never called: `admit` refuses."""
        raise NotImplementedError

    def can_append(self, group: int) -> bool:
        """Never called: `reserve` refuses."""
        raise NotImplementedError

    def can_swap_out(self, group: int) -> Admission:
        """Never called: there is no swap."""
        raise NotImplementedError

    def can_swap_in(self, group: int) -> Admission:
        """Never called: there is no swap."""
        raise NotImplementedError

    # Calls ------------------------------------------------------------------------------------------------------

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        """Look up, and allocate for the first chunk."""
        seq = self._seq_of[group]
        request = self._requests[seq]
        blocks, hit = self._found(request)
        left = request.num_tokens - hit
        count = min(left, num_tokens) if self._config.chunked else left
        options: dict[str, Any] = {"new_computed_blocks": blocks}
        if self._calls.takes_num_found:
            options["num_new_computed_tokens"] = hit
        if self._config.lookahead:
            options["num_lookahead_tokens"] = self._config.lookahead
        if self._calls.takes_found:
            done = self._manager.allocate_slots(request, count, **options)
        else:
            done = self._manager.allocate_slots(request, count, blocks or [])
        if done is None:
            return Refused("allocate_slots gave None")
        request.num_computed_tokens = hit
        request.status = self._status("RUNNING")
        self._live.add(seq)
        return Admitted(hit)

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        """Slots for the next chunk or token."""
        call = self._manager.append_slots if self._calls.appends else self._manager.allocate_slots
        options = {"num_lookahead_tokens": self._config.lookahead} if self._config.lookahead else {}
        done = call(self._requests[seq], num_tokens, **options)
        return Refused("no slots were given") if done is None else Reserved()

    def fork(self, parent: int, child: int) -> None:
        """Never called: requests do not fork."""
        raise NotImplementedError

    def free(self, seq: int) -> None:
        """The request is over."""
        request = self._requests.pop(seq)
        if seq in self._live:
            self._live.remove(seq)
            self._manager.free(request)
        if self._calls.frees_hashes:
            self._manager.free_block_hashes(request)

    def preempt(self, group: int) -> None:
        """As the scheduler preempts: blocks are given up, tokens kept, and the request waits again."""
        seq = self._seq_of[group]
        request = self._requests[seq]
        self._manager.free(request)
        self._live.remove(seq)
        request.num_computed_tokens = 0
        request.num_preemptions = 1
        request.status = self._status("PREEMPTED")

    def swap_out(self, group: int) -> list[Pair]:
        """Never called: there is no swap."""
        raise NotImplementedError

    def swap_in(self, group: int) -> list[Pair]:
        """Never called: there is no swap."""
        raise NotImplementedError

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        """The manager is told nothing before a step."""

    def step_done(self, step: list[Scheduled]) -> None:
        """The requests know what is computed; a new step starts."""
        for one in step:
            self._requests[one.seq].num_computed_tokens = one.stop
        if self._calls.takes_block_ids:
            self._manager.take_new_block_ids()
        if self._calls.starts_steps:
            self._manager.new_step_starts()

    def reset_cache(self) -> bool:
        """Forget the prefix cache."""
        return bool(self._manager.reset_prefix_cache())

    def observe(self) -> Observation:
        """Tables, refcounts, and the free queue from its first block to its last."""
        return self._shown.observe()


def make(version: str) -> VllmV1:
    """The manager of a release that was brought in. Raises EngineError."""
    return VllmV1(version, import_release(version))
