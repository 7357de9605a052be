"""The built-in manager beside the managers that engines use today: vLLM V1's `KVCacheManager` and nano-vllm's.

32 sequences of 1,032 tokens live through their lives together: they are admitted, each gets 64 more tokens, one by one,
and they are freed. Each manager is called as its own scheduler calls it, on the requests that it expects. What an
engine does for a prompt lies in different calls: V1 hashes it when the request is made, nano-vllm when a step is over,
kvproof when it is admitted. So a row contains all of it:

- *prompt*: the request is made, looked up and admitted, and its step is completed.
- *append*: a token arrives, gets its slot, and its step is completed.
- *free*: the sequence ends. kvproof is also given the time of the last use, which orders evictions; in the two others
  the time is that of the call.
- *whole life*: the sum of these.

A caller of kvproof does not ask before an append, and neither does one of V1: where no block is left, the call says so
and has changed nothing. nano-vllm's caller has to ask.

The managers take turns, and the order changes with each life. Each life begins with a new manager, so that no life
depends on the one before. Times are processor times of the thread, medians over the lives; the first life is not
counted. vLLM hashes with its default, SHA-256 of the pickled tokens; nano-vllm with xxhash where it is installed.
`KVPROOF_NANO_VLLM` names a checkout of nano-vllm.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import random
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

from benchmarks.driven import BLOCK_SIZE, LightGroup, LightSequence, shown
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.nano_vllm import import_module
from kvproof.check.subjects.vllm.v1_fakes import FakeRequest
from kvproof.check.subjects.vllm.v1_loader import import_release
from kvproof.check.subjects.vllm.v1_observation import MODEL_LENGTH_MAX, cache_config
from kvproof.impl import BlockManager, SequenceStatus
from kvproof.spec.text.identity import Key

VLLM_VERSION, CHECKOUT = "0.33.0", "KVPROOF_NANO_VLLM"
OURS, V1, NANO = "kvproof", f"vllm v1 {VLLM_VERSION}", "nano-vllm"
NUM_SEQS, PROMPT_TOKENS, NUM_APPENDS, NUM_LIVES = 32, 64 * BLOCK_SIZE + BLOCK_SIZE // 2, 64, 15
BLOCKS_EACH = (PROMPT_TOKENS + NUM_APPENDS) // BLOCK_SIZE + 1
ROWS = ("prompt", "append", "free", "whole life")
NEW, KNOWN, FULL, UNCACHED = MODES = ("new prompts", "known prompts", "new prompts, full pool", "no cache")

Prompts = Sequence[list[int]]


class Engine(ABC):
    """One manager and what its scheduler calls."""

    name: str

    @abstractmethod
    def make(self, num_blocks: int, caching: bool) -> None:
        """Begin with a new manager. Raises NotImplementedError if the cache cannot be switched off."""

    @abstractmethod
    def admit(self, prompts: Prompts) -> list[Any]:
        """Make and admit the requests, and complete the step that computes their prompts."""

    @abstractmethod
    def append(self, seqs: list[Any], token: int) -> None:
        """Append a token to each request, and complete the step that computes it."""

    @abstractmethod
    def free(self, seqs: list[Any]) -> None:
        """End the requests."""

    @abstractmethod
    def num_free(self) -> int:
        """Number of blocks that can be taken."""


class Ours(Engine):
    """The built-in manager."""

    name = OURS

    def make(self, num_blocks: int, caching: bool) -> None:
        self.manager = BlockManager(BLOCK_SIZE, num_blocks, 0, 0.0, enable_caching=caching)
        self.now = 0.0

    def admit(self, prompts: Prompts) -> list[tuple[LightSequence, LightGroup]]:
        manager, admitted = self.manager, []
        for number, prompt in enumerate(prompts):
            seq = LightSequence(number, prompt[:], SequenceStatus.WAITING)
            group = LightGroup(str(number), [seq])
            if manager.can_allocate(group).name != "OK":
                raise RuntimeError("a prompt does not fit")
            manager.allocate(group)
            seq.status = SequenceStatus.RUNNING
            hit = manager.get_num_cached_tokens(seq)
            manager.mark_blocks_as_computed(group, len(prompt) - hit)
            seq.num_computed = len(prompt)
            admitted.append((seq, group))
        return admitted

    def append(self, seqs: list[tuple[LightSequence, LightGroup]], token: int) -> None:
        manager = self.manager
        for seq, group in seqs:
            seq.tokens.append(token)
            manager.append_slots(seq, 0)
            manager.mark_blocks_as_computed(group, 1)
            seq.num_computed += 1

    def free(self, seqs: list[tuple[LightSequence, LightGroup]]) -> None:
        manager = self.manager
        self.now += 1.0
        for seq, _group in seqs:
            manager.access_all_blocks_in_seq(seq, self.now)
            manager.free(seq)

    def num_free(self) -> int:
        return self.manager.get_num_free_gpu_blocks()


def sha256(value: Any) -> bytes:
    """vLLM's default hash of a block (vllm/utils/hashing.py, sha256)."""
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


class VllmV1(Engine):
    """vLLM's V1 manager with one group of full attention. Raises EngineError if the release is not here."""

    name = V1

    def __init__(self) -> None:
        try:
            self.release = import_release(VLLM_VERSION)
        except EngineError:
            download.add(f"vllm=={VLLM_VERSION}")
            self.release = import_release(VLLM_VERSION)
        self.status = self.release.status

    def make(self, num_blocks: int, caching: bool) -> None:
        self.release.utils.init_none_hash(sha256)
        self.hasher = self.release.utils.get_request_block_hasher(BLOCK_SIZE, sha256) if caching else None
        self.manager = self.release.manager.KVCacheManager(
            kv_cache_config=cache_config(
                self.release.interface, Config(BLOCK_SIZE, num_blocks + 1, caching=caching)
            ),  # one is the null block
            max_model_len=MODEL_LENGTH_MAX,
            scheduler_block_size=BLOCK_SIZE,
            hash_block_size=BLOCK_SIZE,
            enable_caching=caching,
        )

    def admit(self, prompts: Prompts) -> list[FakeRequest]:
        manager, key, requests = self.manager, Key(), []
        manager.new_step_starts()
        for number, prompt in enumerate(prompts):
            request = FakeRequest(number, prompt, key, (), self.hasher)
            request.status = self.status.WAITING
            blocks, hit, _ = manager.get_computed_blocks(request)
            slots = manager.allocate_slots(
                request, len(prompt) - hit, num_new_computed_tokens=hit, new_computed_blocks=blocks
            )
            if slots is None:
                raise RuntimeError("a prompt does not fit")
            request.status = self.status.RUNNING
            request.num_computed_tokens = len(prompt)
            requests.append(request)
        manager.take_new_block_ids()
        return requests

    def append(self, seqs: list[FakeRequest], token: int) -> None:
        manager = self.manager
        manager.new_step_starts()
        for request in seqs:
            request.append_token(token)
            if manager.allocate_slots(request, 1) is None:
                raise RuntimeError("a token does not fit")
            request.num_computed_tokens += 1
        manager.take_new_block_ids()

    def free(self, seqs: list[FakeRequest]) -> None:
        manager = self.manager
        for request in seqs:
            manager.free(request)

    def num_free(self) -> int:
        return int(self.manager.block_pool.get_num_free_blocks())


class NanoVllm(Engine):
    """nano-vllm's manager. Raises EngineError if no checkout is named."""

    name = NANO

    def __init__(self) -> None:
        if CHECKOUT not in os.environ:
            raise EngineError(f"{CHECKOUT} names no checkout of nano-vllm")
        self.module = import_module(os.environ[CHECKOUT], "block_manager")
        self.sequence = type("Sequence", (self.module.Sequence,), {"block_size": BLOCK_SIZE})

    def make(self, num_blocks: int, caching: bool) -> None:
        if not caching:
            raise NotImplementedError("nano-vllm always has a prefix cache")
        self.manager = self.module.BlockManager(num_blocks, BLOCK_SIZE)

    def admit(self, prompts: Prompts) -> list[Any]:
        manager, seqs = self.manager, []
        for prompt in prompts:
            seq = self.sequence(prompt)
            num_cached = manager.can_allocate(seq)
            if num_cached < 0:
                raise RuntimeError("a prompt does not fit")
            manager.allocate(seq, num_cached)
            seq.num_scheduled_tokens = seq.num_tokens - seq.num_cached_tokens
            self._complete(seq)
            seqs.append(seq)
        return seqs

    def _complete(self, seq: Any) -> None:
        self.manager.hash_blocks(seq)
        seq.num_cached_tokens += seq.num_scheduled_tokens
        seq.num_scheduled_tokens = 0

    def append(self, seqs: list[Any], token: int) -> None:
        manager = self.manager
        for seq in seqs:
            seq.append_token(token)
            if not manager.can_append(seq):
                raise RuntimeError("a token does not fit")
            seq.num_scheduled_tokens = 1
            manager.may_append(seq)
            manager.hash_blocks(seq)
            seq.num_cached_tokens += seq.num_scheduled_tokens
            seq.num_scheduled_tokens = 0

    def free(self, seqs: list[Any]) -> None:
        manager = self.manager
        for seq in seqs:
            manager.deallocate(seq)

    def num_free(self) -> int:
        return len(self.manager.free_block_ids)


def engines() -> tuple[list[Engine], dict[str, str]]:
    """The engines that are here, ours first; and why each of the others is missing."""
    found: list[Engine] = [Ours()]
    missing = {}
    makers: dict[str, Callable[[], Engine]] = {V1: VllmV1, NANO: NanoVllm}
    for name, make in makers.items():
        try:
            found.append(make())
        except (EngineError, ImportError) as error:
            missing[name] = str(error)
    return found, missing


def life(engine: Engine, prompts: Prompts, first_token: int = 0) -> dict[str, float]:
    """Microseconds for each prompt, token and free, and for the whole life of one sequence."""
    before = engine.num_free()
    marks = [time.thread_time_ns()]
    seqs = engine.admit(prompts)
    marks.append(time.thread_time_ns())
    for token in range(first_token, first_token + NUM_APPENDS):
        engine.append(seqs, token)
    marks.append(time.thread_time_ns())
    engine.free(seqs)
    marks.append(time.thread_time_ns())
    if engine.num_free() != before:
        raise RuntimeError(f"{engine.name} still holds blocks when every sequence is freed")
    prompt, append, free = ((end - start) / len(prompts) / 1000 for start, end in pairwise(marks))
    return {"prompt": prompt, "append": append / NUM_APPENDS, "free": free, "whole life": prompt + append + free}


def lives(engine: Engine, mode: str, draw: random.Random) -> dict[str, float]:
    """One life of a mode, after the lives that it presumes."""
    is_full = mode == FULL
    engine.make(BLOCKS_EACH * NUM_SEQS * (1 if is_full else 3), caching=mode != UNCACHED)
    first, second = ([draw.choices(range(32_000), k=PROMPT_TOKENS) for _ in range(NUM_SEQS)] for _ in range(2))
    if mode == KNOWN or is_full:
        life(engine, first, NUM_APPENDS)  # the same prompts continue with other tokens
    gc.collect()
    gc.disable()
    try:
        return life(engine, second if is_full else first)
    finally:
        gc.enable()


def measured(found: Sequence[Engine], mode: str, num_lives: int) -> dict[str, dict[str, float]]:
    """Microseconds by row and engine; an engine that does not have this mode is left out."""
    costs: dict[str, dict[str, list[float]]] = {row: {} for row in ROWS}
    for number in range(num_lives + 1):
        for engine in found if number % 2 else found[::-1]:
            try:
                figures = lives(engine, mode, random.Random(number))
            except NotImplementedError:
                continue
            if number:
                for row, cost in figures.items():
                    costs[row].setdefault(engine.name, []).append(cost)
    return {row: {name: statistics.median(each) for name, each in by.items()} for row, by in costs.items()}


def report(mode: str, costs: Mapping[str, Mapping[str, float]]) -> None:
    """Print one mode: the cost in each engine, and how many times as long as ours it takes."""
    print(f"\n{mode}: microseconds" + "".join(f"{name:>{24}}" for name in (OURS, V1, NANO)))
    for row, by in costs.items():
        cells = []
        for name in (OURS, V1, NANO):
            ratio = f" ({by[name] / by[OURS]:.2f})" if name in by and name != OURS else ""
            cells.append(f"{shown(by[name]) + ratio if name in by else 'not measured':>24}")
        print(f"  {row:<{len(mode) + 12}}" + "".join(cells), flush=True)


def main(num_lives: int = NUM_LIVES, modes: Sequence[str] = MODES) -> dict[str, Any]:
    """Measure and print, in a process of its own, since a process imports one release of vLLM; returns the figures."""
    with get_context("spawn").Pool(1) as fresh:
        figures: dict[str, Any] = fresh.apply(all_modes, (num_lives, modes))
    return figures


def all_modes(num_lives: int, modes: Sequence[str]) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    found, missing = engines()
    print(
        f"engines: {NUM_SEQS} sequences of {PROMPT_TOKENS:,} tokens, {NUM_APPENDS} appends each, blocks of {BLOCK_SIZE}"
        f" tokens, medians over {num_lives} lives; in parentheses how many times as long as kvproof; goal: above 1"
    )
    for name, why in missing.items():
        print(f"{name} is not measured: {why}")
    figures: dict[str, Any] = {"missing": missing}
    for mode in modes:
        figures[mode] = measured(found, mode, num_lives)
        report(mode, figures[mode])
    return figures
