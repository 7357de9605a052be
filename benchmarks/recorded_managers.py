"""Managers of engines, each with the calls that a server makes, in phases: what `recorded_calls` measures.

A phase has one kind of work, so that a costly call is not hidden by many cheap ones. Each manager is that of a
downloaded release, without a model. A round goes through all phases, and leaves the manager ready for the next round.

A served request makes the calls of each phase once, but decodes `NUM_SERVED` tokens, more than are measured. `often`
says how many times as many calls of a phase it makes, so that the mean of its calls can be computed.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from benchmarks import driven, engines
from benchmarks.driven import BLOCK_SIZE, LightGroup, LightSequence
from benchmarks.sglang_server import Server
from kvproof.check.protocol.manager import Scheduled
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.subjects.lmcache import LMCacheL1
from kvproof.check.subjects.transformers.scheduler import Transformers
from kvproof.check.subjects.vllm.offload import VllmOffload
from kvproof.spec.text.identity import Key

TRANSFORMERS, LMCACHE, SGLANG, VLLM = "5.23.0", "0.5.6", "0.5.23", engines.VLLM_VERSION
NUM_REQUESTS, NUM_DECODES, NUM_CALLS = 4, 16, 20  # of a phase
NUM_SERVED = 200  # tokens that a served request decodes
PROMPTS = (1_000, 2_000, 4_000)  # tokens
Phase = tuple[str, Callable[[], object]]


def each(call: Callable[..., object], *arguments: Iterable[Any]) -> Callable[[], None]:
    """Makes a call with each of the arguments."""

    def calls() -> None:
        for of_call in zip(*arguments, strict=True):
            call(*of_call)

    return calls


class Driven(ABC):
    """One manager. name: of the release. unit: what `size` counts. sizes: those that are measured.

    often: of a phase, how many times as many calls a served request makes as a round; 1 if it is not named.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    sizes: ClassVar[tuple[int, ...]]
    often: ClassVar[dict[str, float]] = {"decode": NUM_SERVED / NUM_DECODES}

    def __init__(self, size: int) -> None:
        self.size, self.random = size, Random(size)

    @property
    @abstractmethod
    def manager(self) -> Any:
        """What is recorded."""

    @abstractmethod
    def phases(self) -> Iterator[Phase]:
        """The phases of one round, each with its name."""


class SGLangPages(Driven):
    """Prompts of `size` tokens, half of them common to many, of which the pool evicts what no request holds."""

    name, unit, sizes, page = f"SGLang {SGLANG}, pages of 16", "token", PROMPTS, 16

    def __init__(self, size: int) -> None:
        super().__init__(size)
        num_pages = 3 * NUM_REQUESTS * (size + 64) // self.page
        self.server = Server(SGLANG, 1, (self.page, num_pages, NUM_REQUESTS), size)
        self.numbers = itertools.count(1)

    @property
    def manager(self) -> Any:
        return self.server.adapter.manager

    def phases(self) -> Iterator[Phase]:
        adapter, server, tokens_of, half = self.server.adapter, self.server, self.server._tokens, self.size // 2
        prompts = {next(self.numbers): self.random.choice(server.common) + tokens_of(half) for _ in range(NUM_REQUESTS)}
        for seq, tokens in prompts.items():
            adapter.new(seq, [seq], tokens, Key(), ())

        def decode() -> None:
            for token, seq in itertools.product(range(NUM_DECODES), prompts):
                adapter.grow(seq, token)
                adapter.reserve(seq, 1)

        step = [Scheduled(seq, len(tokens), len(tokens)) for seq, tokens in prompts.items()]
        yield "admit", each(adapter.admit, prompts, map(len, prompts.values()))
        yield "publish", lambda: adapter.step_done(step)
        yield "decode", decode
        yield "end", each(self._end, prompts)

    def _end(self, seq: int) -> None:
        self.server.adapter.free(seq)
        self.server.adapter.forget(seq)


class SGLangSlots(SGLangPages):
    """As `SGLangPages`, with SGLang's default page of one token."""

    name, page = f"SGLang {SGLANG}, pages of 1", 1


@dataclass(frozen=True)
class ObjectKey:
    """The fields of LMCache's `ObjectKey`, which is a frozen dataclass too."""

    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int = 0
    cache_salt: str = ""


class LMCacheKeys(Driven):
    """Objects that are stored, read and deleted, `size` keys with each call."""

    name, unit, sizes, often = f"LMCache {LMCACHE}", "key", (1, 4, 8, 16), {}

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.subject = LMCacheL1(LMCACHE)
        self.subject.open(StoreConfig(num_gpu_blocks=NUM_CALLS * size))
        self.manager.config.write_ttl_seconds = self.manager.config.read_ttl_seconds = 600.0

    @property
    def manager(self) -> Any:
        return self.subject._manager

    def phases(self) -> Iterator[Phase]:
        manager, size, draw = self.manager, self.size, self.random.randbytes
        calls = [[ObjectKey(draw(32), "model", 1 << 24) for _ in range(size)] for _ in range(NUM_CALLS)]
        lasting = [False] * size
        yield "reserve_write", lambda: [manager.reserve_write(keys, lasting, None, tag="server") for keys in calls]
        yield "finish_write", lambda: [manager.finish_write(keys, "server") for keys in calls]
        yield "reserve_read", lambda: [manager.reserve_read(keys) for keys in calls]
        yield "finish_read", lambda: [manager.finish_read(keys) for keys in calls]
        yield "delete", lambda: [manager.delete(keys) for keys in calls]


class OffloadKeys(Driven):
    """Blocks that are stored in host memory and loaded again, `size` keys with each call."""

    name, unit, sizes, often = f"vLLM {VLLM}, offloading", "key", (1, 4, 16, 64), {}

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.subject = VllmOffload(VLLM)
        self.subject.open(StoreConfig(num_gpu_blocks=2 * NUM_CALLS * size))
        self.numbers = itertools.count(1)

    @property
    def manager(self) -> Any:
        return self.subject._manager

    def phases(self) -> Iterator[Phase]:
        subject, size = self.subject, self.size
        draw = self.random.getrandbits
        calls = {next(self.numbers): [draw(60) for _ in range(size)] for _ in range(NUM_CALLS)}
        yield "prepare_store", each(subject.begin_store, calls, calls, calls.values())
        yield "complete_store", each(lambda one, keys: subject.end_store(one, one, keys, []), calls, calls.values())
        yield "lookup", each(subject.look_up, calls, calls.values())
        yield "prepare_load", each(subject.begin_load, calls, calls, calls.values())
        yield "complete_load", each(subject.end_load, calls, calls, calls.values())
        for one in calls:
            subject.finish(one)


class V0Tokens(Driven):
    """Requests with prompts of `size` tokens of the manager before V1, whose recorder writes its lines itself."""

    name, unit, sizes = f"vLLM V0 {driven.VLLM_VERSION}", "token", PROMPTS

    def __init__(self, size: int) -> None:
        super().__init__(size)
        theirs = driven.theirs()
        blocks = 2 * NUM_REQUESTS * (size // BLOCK_SIZE + 2)
        self.blocks = theirs.make(
            block_size=BLOCK_SIZE, num_gpu_blocks=blocks, num_cpu_blocks=0, enable_caching=True, watermark=0.0
        )
        self.status, self.numbers = theirs.status, itertools.count(1)

    @property
    def manager(self) -> Any:
        return self.blocks

    def phases(self) -> Iterator[Phase]:
        manager, status = self.blocks, self.status
        prompts = [[self.random.randrange(50_000) for _ in range(self.size)] for _ in range(NUM_REQUESTS)]
        seqs = [LightSequence(next(self.numbers), prompt, status.WAITING) for prompt in prompts]
        groups = [LightGroup(str(seq.seq_id), [seq]) for seq in seqs]

        def admit(group: LightGroup) -> None:
            manager.can_allocate(group)
            manager.get_num_cached_tokens(group.seqs[0])
            manager.allocate(group)
            group.seqs[0].status = status.RUNNING

        def computed(group: LightGroup, num_tokens: int) -> None:
            manager.mark_blocks_as_computed(group, num_tokens)
            group.seqs[0].num_computed += num_tokens

        def decode(token: int) -> None:
            for group, seq in zip(groups, seqs, strict=True):
                seq.tokens.append(token)
                manager.can_append_slots(group, 0)
                manager.append_slots(seq, 0)
                computed(group, 1)

        yield "admit", each(admit, groups)
        yield "publish", each(computed, groups, [self.size] * NUM_REQUESTS)
        yield "decode", each(decode, range(NUM_DECODES))
        yield "end", each(manager.free, seqs)


class V1Tokens(Driven):
    """Requests with prompts of `size` tokens. A call of a decode concerns a request of this length."""

    name, unit, sizes = f"vLLM V1 {VLLM}", "token", PROMPTS

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.engine = engines.VllmV1()
        self.engine.make(2 * NUM_REQUESTS * (size // BLOCK_SIZE + 2), True)

    @property
    def manager(self) -> Any:
        return self.engine.manager

    def phases(self) -> Iterator[Phase]:
        prompts = [[self.random.randrange(50_000) for _ in range(self.size)] for _ in range(NUM_REQUESTS)]
        requests: list[Any] = []
        yield "admit", lambda: requests.extend(self.engine.admit(prompts))
        yield "decode", each(lambda token: self.engine.append(requests, token), range(NUM_DECODES))
        yield "end", lambda: self.engine.free(requests)


class TransformersTokens(Driven):
    """Requests with prompts of `size` tokens, each of which forks when its prompt is computed."""

    name, unit, sizes = f"transformers {TRANSFORMERS}", "token", PROMPTS

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.subject = Transformers(TRANSFORMERS)
        blocks = 4 * NUM_REQUESTS * (size // BLOCK_SIZE + 4)
        fixed = {"num_gpu_blocks": blocks, "max_model_len": size + 64, "max_num_batched_tokens": NUM_REQUESTS * size}
        self.subject.open(SchedulerConfig(block_size=BLOCK_SIZE, caching=True, chunked=True, **fixed))  # type: ignore[arg-type]
        self.numbers = itertools.count(1)

    @property
    def manager(self) -> Any:
        return self.subject._cache

    def phases(self) -> Iterator[Phase]:
        subject = self.subject
        parents = [next(self.numbers) for _ in range(NUM_REQUESTS)]
        seqs = {one: next(self.numbers) for one in parents}
        for one, child in seqs.items():
            prompt = [self.random.randrange(50_000) for _ in range(self.size)]
            subject.add_request(one, [one, child], prompt, Key(), (), 2 * NUM_DECODES, None)

        def step(finished: bool) -> None:
            chunks = subject.schedule().chunks
            names = [chunk.seq for chunk in chunks]
            subject.complete(dict.fromkeys(names, 7), [], names if finished else [])
            subject.forked()

        yield "admit", lambda: subject.schedule()
        yield "fork", lambda: subject.complete(dict.fromkeys(parents, 7), [], [])
        subject.forked()
        yield "decode", each(step, [False] * NUM_DECODES)
        yield "end", lambda: step(True)


MANAGERS: tuple[type[Driven], ...] = (
    V0Tokens,
    V1Tokens,
    OffloadKeys,
    LMCacheKeys,
    SGLangPages,
    SGLangSlots,
    TransformersTokens,
)
