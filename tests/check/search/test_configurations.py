"""How the configurations of schedulers are drawn: sequences that the pool holds, and features that come together."""

from collections import Counter
from dataclasses import replace
from random import Random

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import FULL, STATE
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search.configurations import draw, draw_for_scheduler, longest_held
from kvproof.spec.text.loads import FAIL, RECOMPUTE

LOADS = Capabilities(
    caching=True,
    chunked=True,
    window=True,
    transfers=True,
    loads_in_step=True,
    load_failures=(RECOMPUTE, FAIL),
    connectors=("own",),
    speculative_tokens=2,
    async_steps=1,
)


def drawn(capabilities: Capabilities, num: int = 400, **fixed: object) -> list[SchedulerConfig]:
    random = Random(1)
    return [draw_for_scheduler(random, capabilities, fixed) for _ in range(num)]


def test_events_and_prompts_without_tokens_are_not_drawn_together() -> None:
    random, can = Random(1), Capabilities(caching=True, block_events=True, embeddings=True)
    configs = [draw(random, can) for _ in range(400)]
    assert {(bool(one.events), one.embeddings) for one in configs} == {(False, False), (False, True), (True, False)}
    assert not any(draw(random, can, {"events": 1}).embeddings for _ in range(100))


def test_ranks_share_the_tokens_of_whole_blocks_of_one_group_of_full_attention() -> None:
    random = Random(1)
    can = Capabilities(caching=True, window=True, window_with_caching=True, kv_groups=True, context_parallel=True)
    shared = [one for one in (draw(random, can) for _ in range(800)) if one.ranks > 1]
    assert {one.ranks for one in shared} == {2, 4}
    assert all(one.block_size % one.ranks == 0 and one.windows == (0,) for one in shared)
    assert not any(draw(random, replace(can, context_parallel=False)).ranks > 1 for _ in range(100))


def test_a_pool_that_must_hold_the_longest_sequence_holds_it() -> None:
    configs = drawn(Capabilities(kv_groups=True, holds_longest=True))
    held = [one for one in configs if not one.window]
    sizes = [sum(-(-(one.max_model_len + 1) // size) for size in one.block_sizes) for one in held]
    assert all(size < one.num_gpu_blocks or one.max_model_len == 1 for size, one in zip(sizes, held, strict=True))
    assert sum(one.max_model_len + 1 == one.block_size * (one.num_gpu_blocks - 1) for one in held) > len(held) // 3


def test_a_length_that_is_held_leaves_one_block_and_one_token() -> None:
    config = SchedulerConfig(block_size=4, num_gpu_blocks=5)
    assert [longest_held(config, most) for most in (3, 15, 100)] == [3, 15, 15]
    assert longest_held(SchedulerConfig(block_size=4, num_gpu_blocks=1), 100) == 1


def test_another_scheduler_draws_longer_sequences_than_its_pool_holds() -> None:
    configs = drawn(Capabilities())
    assert sum(one.max_model_len > one.block_size * one.num_gpu_blocks for one in configs) > 100


def test_failures_of_loads_are_drawn_with_each_policy_and_within_steps() -> None:
    kinds = Counter((one.load_failures, one.loads_in_step) for one in drawn(LOADS) if one.load_failures)
    assert sorted(kinds) == [(policy, within) for policy in (FAIL, RECOMPUTE) for within in (False, True)]
    assert min(kinds.values()) >= 400 // 25


def test_states_are_drawn_with_loads_and_a_cache() -> None:
    capabilities = Capabilities(
        caching=True, transfers=True, hybrid_transfers=True, kv_groups=True, states=True, window_with_caching=True
    )
    configs = drawn(capabilities)
    assert sum(one.has_states and one.transfers and one.caching for one in configs) >= 400 // 10
    assert {one.kv_groups for one in configs} >= {(STATE,), (FULL, STATE)}


def test_what_is_fixed_stays_whatever_comes_together() -> None:
    assert not any(one.transfers for one in drawn(LOADS, transfers=False))
    assert {one.connector for one in drawn(LOADS, connector="own")} == {"own"}
    assert {one.load_failures for one in drawn(LOADS, transfers=True, load_failures=FAIL)} == {FAIL}
