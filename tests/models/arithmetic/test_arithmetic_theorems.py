"""The arithmetic of blocks: every claim is proved, and falls when the source is off by one somewhere."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType

import pytest
import z3

from kvproof.models.arithmetic import (
    admissions,
    appends,
    identifiers,
    lengths,
    memory,
    obligations,
    retention,
    windows,
)
from kvproof.models.arithmetic.sources import Sources
from kvproof.models.obligation import WELL_DEFINED, Obligation
from kvproof.models.proofs import least_element_lemma, multiplication_lemma
from kvproof.spec.text.properties import MEANINGS

OBLIGATIONS = list(obligations())
SHORT, LONG = 300_000, 10_000_000


def answer(obligation: Obligation, seed: int = 0, steps: int = 50_000_000) -> str:
    """What the solver says within so many steps of its own, which are the same on every machine."""
    solver = z3.Solver()
    solver.set("random_seed", seed)
    solver.set("rlimit", steps)
    solver.add(*(one.formula for one in obligation.hypotheses), obligation.negated_goal())
    return str(solver.check())


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))])
def test_every_claim_is_proved_whatever_the_seed(seed: int) -> None:
    answers = {one.id: answer(one, seed) for one in OBLIGATIONS}
    assert {name: given for name, given in answers.items() if given != "unsat"} == {}


def test_every_claim_has_a_name_of_its_own_and_a_known_property() -> None:
    assert len({one.id for one in OBLIGATIONS}) == len(OBLIGATIONS) > 100
    assert {one.property for one in OBLIGATIONS} <= MEANINGS.keys() | {WELL_DEFINED}


def test_the_hypotheses_of_a_claim_do_not_contradict_each_other() -> None:
    for one in OBLIGATIONS:
        if one.goal is False or z3.is_false(one.goal):
            continue  # a claim that something cannot be: its hypotheses are meant to contradict each other
        impossible = Obligation(one.suite, one.subject, one.claim, one.property, one.hypotheses, False)
        assert answer(impossible, steps=SHORT) != "unsat", one.id


def test_a_divisor_that_could_be_zero_is_no_divisor() -> None:
    without_sizes = [
        Obligation(one.suite, one.subject, one.claim, one.property, (), one.goal)
        for one in OBLIGATIONS
        if one.property == WELL_DEFINED and "is positive" in one.claim
    ]
    assert len(without_sizes) >= 10
    assert [one.id for one in without_sizes if answer(one) != "sat"] == []


MUTANTS: list[tuple[ModuleType, str, str, str]] = [
    (lengths, "num_blocks_for", "-(-num_slots // block_size)", "num_slots // block_size"),
    (lengths, "num_blocks_for", "-(-num_slots // block_size)", "num_slots // block_size + 1"),
    (lengths, "num_blocks_for", "-(-num_slots // block_size)", "-(-num_slots // block_size) + 1"),
    (lengths, "num_blocks_for", "-(-num_slots // block_size)", "-(-(num_slots - 1) // block_size)"),
    (lengths, "num_blocks_for", "-(-num_slots // block_size)", "num_slots"),
    (lengths, "num_blocks_for", "-(-num_slots // block_size)", "-(-num_slots // (block_size + 1))"),
    (lengths, "num_blocks_for", "-(-num_slots // block_size)", "-(-num_slots // (block_size - 1))"),
    (lengths, "num_blocks_for", "-(-num_slots // block_size)", "10 - num_slots // block_size"),
    (lengths, "num_blocks_for", "-(-num_slots // block_size)", "num_slots * num_slots"),
    (
        lengths,
        "SelfAttnBlockSpaceManager._num_prompt_blocks",
        "num_blocks_for(num_slots, self.block_size)",
        "num_blocks_for(num_slots + 1, self.block_size)",
    ),
    (lengths, "BlockTable.get_num_required_blocks", "len(token_ids) + num_lookahead_slots", "len(token_ids)"),
    (lengths, "Growth.append", "seen // size, -(-end", "(seen + 1) // size, -(-end"),
    (lengths, "Growth.append", "seen // size, -(-end", "seen // (size - 1), -(-end"),
    (appends, "Growth.num_needed", "known + num_lookahead_slots", "known + num_lookahead_slots - 1"),
    (appends, "Growth.num_needed", "max(0, stop - len(ids))", "max(0, stop - len(ids) - 1)"),
    (appends, "Growth.num_needed", "max(0, stop - len(ids))", "max(1, stop - len(ids))"),
    (appends, "Growth.num_needed", "-(-end // size)", "end // size"),
    (appends, "Growth.num_needed", "-(-end // size)", "-(-end // (size - 1))"),
    (appends, "Growth.num_needed", "- before > 1", "- before > 2"),
    (appends, "Growth.num_needed", "- before > 1", "- before > 0"),
    (appends, "Growth.num_needed", "max(0, needed)", "needed"),
    (appends, "Growth.num_needed", "is_null_extra or needed >= 0", "is_null_extra or needed > 0"),
    (appends, "Growth.append", "-(-end // size)", "end // size"),
    (appends, "Growth.append", "-(-end // size)", "-(-end // (size - 1))"),
    (appends, "Growth.append", "max(0, stop - len(ids))", "max(0, stop - len(ids)) + 1"),
    (appends, "Growth.append", "first, stop = seen // size", "first, stop = (seen + 1) // size"),
    (appends, "Growth.append", "first, stop = seen // size", "first, stop = seen // (size - 1)"),
    (appends, "Growth.append", "num_fresh + num_null > num_free", "num_fresh + num_null >= num_free"),
    (appends, "Growth.append_within_block", "index = seen // size", "index = seen // size + 1"),
    (appends, "Growth.append_within_block", "index = seen // size", "index = seen // (size - 1)"),
    (appends, "Growth.append_within_block", "(index + 1) * size", "(index + 2) * size"),
    (appends, "Growth.append_within_block", "(index + 1) * size", "(index + 1) * size - 1"),
    (appends, "Growth.append_within_block", "not seen < end <= num_slots", "not seen <= end <= num_slots"),
    (appends, "Growth.append_within_block", "not seen < end <= num_slots", "not seen < end < num_slots"),
    (appends, "Growth.append_within_block", "index == len(ids)", "index + 1 == len(ids)"),
    (appends, "Growth.append_within_block", "refcount > 1", "refcount > 2"),
    (appends, "Growth.append_within_block", "refcount > 1", "refcount > 0"),
    (appends, "num_blocks_for", "-(-num_slots // block_size)", "num_slots"),
    (appends, "num_blocks_for", "-(-num_slots // block_size)", "2 * num_slots"),
    (appends, "num_blocks_for", "-(-num_slots // block_size)", "num_slots // (block_size - 1)"),
    (
        appends,
        "BlockTable.get_num_blocks_touched_by_append_slots",
        "self._num_full_slots + num_slots, self._block_size) - first",
        "self._num_full_slots + num_slots - 1, self._block_size) - first",
    ),
    (appends, "BlockTable.get_num_blocks_touched_by_append_slots", "return 0", "return 1"),
    (
        appends,
        "BlockTable.get_num_blocks_touched_by_append_slots",
        "self._num_full_slots // self._block_size",
        "self._num_full_slots // (self._block_size - 1)",
    ),
    (
        appends,
        "BlockTable.get_num_blocks_touched_by_append_slots",
        "self._num_full_slots + num_slots, self._block_size) - first",
        "self._num_full_slots + num_slots, self._block_size - 1) - first",
    ),
    (admissions, "admission", "num_usable - num_required < watermark", "num_usable - num_required <= watermark"),
    (admissions, "admission", "num_usable - num_required < watermark", "num_usable - num_required < 2 * watermark"),
    (admissions, "admission", "num_usable - num_required < watermark", "num_free - num_required < watermark"),
    (admissions, "admission", "num_usable - num_required < watermark", "num_usable + 1 - num_required < watermark"),
    (admissions, "admission", "num_free - num_required >= watermark", "num_free - num_required > watermark"),
    (admissions, "admission", "num_free - num_required >= watermark", "num_free - num_required + 1 >= watermark"),
    (admissions, "admission", "num_free - num_required >= watermark", "num_free - num_required == watermark"),
    (admissions, "admission_from_host", "num_needed > num_usable", "num_needed >= num_usable"),
    (admissions, "admission_from_host", "num_needed > num_usable", "num_needed > num_usable + 1"),
    (admissions, "admission_from_host", "num_free - num_needed >= water", "num_free - num_needed + 1 >= water"),
    (admissions, "admission_from_host", "    if is_idle:\n", "    if is_idle and num_needed < num_usable:\n"),
    (
        admissions,
        "SelfAttnBlockSpaceManager._num_prompt_blocks",
        "num_blocks_for(num_slots, self.block_size)",
        "num_blocks_for(num_slots, self.block_size - 1)",
    ),
    (
        admissions,
        "SelfAttnBlockSpaceManager._num_prompt_blocks",
        "num_blocks_for(num_slots, self.block_size)",
        "num_blocks_for(num_slots, self.block_size) - 1",
    ),
    (admissions, "num_blocks_for", "-(-num_slots // block_size)", "num_slots // block_size + 1"),
    (admissions, "num_blocks_for", "-(-num_slots // block_size)", "-(-num_slots // (block_size - 1))"),
    (admissions, "DeviceBlocks.take", "num_blocks > len(self.free_ids)", "num_blocks >= len(self.free_ids)"),
    (windows, "num_window_blocks", "+ 2", "+ 3"),
    (windows, "num_window_blocks", "+ 2", "+ 0"),
    (windows, "num_window_blocks", "+ 2", "+ 1"),
    (windows, "num_window_blocks", "// block_size", "// (block_size - 1)"),
    (windows, "Growth.first_kept", "- self.max_block_sliding_window", "- self.max_block_sliding_window + 3"),
    (windows, "Growth.first_kept", "- self.max_block_sliding_window", "- self.max_block_sliding_window - 1"),
    (windows, "Growth.first_kept", "table.num_dropped, min", "0, min"),
    (windows, "Growth.first_kept", "table.num_tokens // self", "table.num_tokens + 1 // self"),
    (windows, "Growth.first_kept", "return 0", "return 1"),
    (windows, "Growth.first_kept", "get_num_computed_tokens() // self.block_size", "get_num_computed_tokens() // 1"),
    (
        windows,
        "Growth.first_kept",
        "get_num_computed_tokens() // self.block_size",
        "get_num_computed_tokens() // (self.block_size - 1)",
    ),
    (windows, "Growth.first_kept", "table.num_tokens // self.block_size", "table.num_tokens // (self.block_size - 1)"),
    (windows, "BlockTable._first_kept", "- self._max_block_sliding_window", "- self._max_block_sliding_window - 1"),
    (windows, "BlockTable._first_kept", "// self._block_size", "// (self._block_size - 1)"),
    (windows, "num_blocks_for", "-(-num_slots // block_size)", "-(-num_slots // (block_size - 1))"),
    (identifiers, "SelfAttnBlockSpaceManager.swap_in", "(source - base, target)", "(source - base + 1, target)"),
    (identifiers, "SelfAttnBlockSpaceManager.swap_in", "(source - base, target)", "(source, target)"),
    (identifiers, "SelfAttnBlockSpaceManager.swap_in", "(source - base, target)", "(base - base, target)"),
    (identifiers, "SelfAttnBlockSpaceManager.swap_in", "(source - base, target)", "(source - base, target + 1)"),
    (identifiers, "SelfAttnBlockSpaceManager.swap_in", "(source - base, target)", "(source - base, base)"),
    (identifiers, "SelfAttnBlockSpaceManager.swap_out", "(source, target - base)", "(source, target)"),
    (identifiers, "SelfAttnBlockSpaceManager.swap_out", "(source, target - base)", "(source - base, target - base)"),
    (memory, "block_bytes", "num_layers * (keys + values)", "num_layers * keys"),
    (memory, "block_bytes", "num_layers * (keys + values)", "num_layers * (keys + values + 1)"),
    (memory, "block_bytes", "num_layers * (keys + values)", "(num_layers - 1) * (keys + values)"),
    (memory, "block_bytes", "0 if latent else keys", "keys"),
    (
        memory,
        "block_bytes",
        'require_at_least("block_size", block_size, 1)',
        'require_at_least("block_size", block_size, 2)',
    ),
    (
        memory,
        "block_bytes",
        'require_at_least("num_layers", num_layers, 1)',
        'require_at_least("num_layers", num_layers, 2)',
    ),
    (
        memory,
        "block_bytes",
        'require_at_least("num_kv_heads", num_kv_heads, 1)',
        'require_at_least("num_kv_heads", num_kv_heads, 2)',
    ),
    (
        memory,
        "block_bytes",
        'require_at_least("head_size", head_size, 1)',
        'require_at_least("head_size", head_size, 2)',
    ),
    (memory, "KVBlockShape.typed", "(2, num_blocks, tokens, heads, size)", "(2, num_blocks, tokens, heads, size + 1)"),
    (memory, "KVBlockShape.typed", "(2, num_blocks, tokens, heads, size)", "(2, num_blocks + 1, tokens, heads, size)"),
    (memory, "KVBlockShape.typed", "(num_blocks, 2, tokens, heads, size)", "(num_blocks, 1, tokens, heads, size)"),
    (memory, "KVBlockShape.typed", "(num_blocks, 2, heads, tokens, size)", "(num_blocks, 2, heads, heads, size)"),
    (memory, "KVBlockShape.typed", "(num_blocks, tokens, size)", "(num_blocks, heads, size)"),
    (memory, "KVBlockShape.planes", "self.bytes_per_layer() // self.num_planes", "self.bytes_per_layer() // 3"),
    (memory, "KVBlockShape.planes", "view(self.num_planes, num_blocks,", "view(self.num_planes, num_blocks + 1,"),
    (memory, "KVBlockShape.planes", "view(self.num_planes, num_blocks,", "view(num_blocks, num_blocks,"),
    (memory, "num_gpu_blocks", "share - peak_bytes", "share"),
    (memory, "num_gpu_blocks", "share - peak_bytes", "share - peak_bytes - 1"),
    (memory, "num_gpu_blocks", "share - peak_bytes, bytes_per_block", "share - peak_bytes, bytes_per_block - 1"),
    (memory, "num_gpu_blocks", "not 0 < utilization <= 1", "not 0 < utilization < 1"),
    (
        memory,
        "num_gpu_blocks",
        'require_at_least("bytes_per_block", bytes_per_block, 1)',
        'require_at_least("b", bytes_per_block, 2)',
    ),
    (memory, "num_cpu_blocks", "swap_space_bytes, bytes_per_block)", "swap_space_bytes + 1, bytes_per_block)"),
    (memory, "num_cpu_blocks", "swap_space_bytes, bytes_per_block)", "swap_space_bytes - 1, bytes_per_block)"),
    (
        memory,
        "num_cpu_blocks",
        "return num_blocks_that_fit(swap",
        "return num_blocks_that_fit(-bytes_per_block, 1) - 1 + num_blocks_that_fit(swap",
    ),
    (memory, "num_cpu_blocks", "swap_space_bytes, bytes_per_block)", "swap_space_bytes, bytes_per_block - 1)"),
    (lengths, "spec: blocks_for", "num_tokens + BLOCK_SIZE - 1", "num_tokens + BLOCK_SIZE"),
    (lengths, "spec: num_tokens_known", "+ state.num_filled[seq]", "+ state.num_filled[seq] + 1"),
    (lengths, "spec: num_tokens_known", "* BLOCK_SIZE", "* (BLOCK_SIZE - 1)"),
    (appends, "spec: entries_missing", "else 0", "else 1"),
    (admissions, "spec: may_answer_ok", "<=", "<"),
    (admissions, "spec: may_end_for_good", "num_blocks > pool", "num_blocks >= pool"),
    (windows, "spec: entries_in_window", "- window // BLOCK_SIZE", "- 2 * window // BLOCK_SIZE"),
    (windows, "spec: entries_passed", "num_before - 2", "num_before - 1"),
    (retention, "spec: is_read_from", "(index + 1) * BLOCK_SIZE", "index * BLOCK_SIZE"),
    (retention, "spec: is_read_from", "window) < (index", "window) == (index"),
    (retention, "spec: is_read_from", "index < boundary + num_dropped", "index <= boundary + num_dropped"),
    (retention, "spec: is_kept", "(index, replay,", "(index, junction,"),
    (retention, "spec: is_kept", "(index, junction,", "(index, replay,"),
    (retention, "spec: is_kept", "interval + interval,", "interval,"),
    (retention, "spec: entries_found_again", "BLOCK_SIZE - num_dropped", "BLOCK_SIZE - num_dropped - 1"),
    (retention, "spec: entries_found_again", "BLOCK_SIZE - num_dropped", "BLOCK_SIZE"),
    (identifiers, "spec: pool_of", "block < NUM_GPU_BLOCKS", "block <= NUM_GPU_BLOCKS"),
    (identifiers, "spec: pool_of", "block < NUM_GPU_BLOCKS", "block < NUM_GPU_BLOCKS - 1"),
    (identifiers, "SelfAttnBlockSpaceManager.swap_in", "(source - base, target)", "(source - base, target // 2)"),
]
LEMMAS = {"counting axis by axis", least_element_lemma.LEMMA, multiplication_lemma.LEMMA}  # about no source
WITHOUT_SOURCE = [one for one in OBLIGATIONS if {one.subject, one.claim} & LEMMAS]
NOT_NEEDED = {(multiplication_lemma.LEMMA, "counts"), ("one number more", "the end")}  # claim and hypothesis

Mutate = Callable[[str, str, str], Sources]
Plant = Callable[[str, str, str, str], AbstractContextManager[None]]


def changed(sources: Sources, part: ModuleType) -> list[Obligation]:
    """The claims of a part that say something else of this reading of the source."""
    known = {one.id: one for one in OBLIGATIONS}
    made = {one.id: one for one in part.obligations(sources)}
    return [one for name, one in made.items() if name not in known or not says_the_same(one, known[name])]


def says_the_same(one: Obligation, other: Obligation) -> bool:
    formulas = [(hypothesis.formula for hypothesis in obligation.hypotheses) for obligation in (one, other)]
    return one.negated_goal().eq(other.negated_goal()) and all(map(z3.ExprRef.eq, *formulas))


def described(mutant: tuple[ModuleType, str, str, str]) -> str:
    part, name, old, new = mutant
    return f"{part.__name__.rpartition('.')[2]}: {name}: {old} -> {new}"


# One mutant of each function by default: making one means reading all that its part claims again.
FIRST = {(part.__name__, name): old + new for part, name, old, new in reversed(MUTANTS)}
MARKED = [
    pytest.param(
        *mutant,
        marks=() if FIRST[mutant[0].__name__, mutant[1]] == mutant[2] + mutant[3] else pytest.mark.long,
        id=described(mutant),
    )
    for mutant in MUTANTS
]


@pytest.mark.parametrize(("part", "name", "old", "new"), MARKED)
def test_a_source_that_is_off_somewhere_fails_a_claim(
    mutate: Mutate, part: ModuleType, name: str, old: str, new: str
) -> None:
    claims = changed(mutate(name, old, new), part)
    assert any(answer(one, steps=steps) == "sat" for steps in (SHORT, LONG) for one in claims)


def plain_name(one: Obligation) -> str:
    """The name without the text of the source, which a mutant changes."""
    return one.id.split(":")[0] if one.property == WELL_DEFINED else one.id


@pytest.mark.long
def test_every_claim_falls_for_some_source(mutate: Mutate) -> None:
    standing = {plain_name(one) for one in OBLIGATIONS} - {plain_name(one) for one in WITHOUT_SOURCE}
    for part, name, old, new in MUTANTS:
        for one in changed(mutate(name, old, new), part):
            if plain_name(one) in standing and answer(one, steps=SHORT) != "unsat":
                standing.remove(plain_name(one))
    assert sorted(standing) == []


@pytest.mark.parametrize("one", WITHOUT_SOURCE, ids=lambda one: one.claim)
def test_a_claim_that_reads_no_source_needs_each_of_its_hypotheses(one: Obligation) -> None:
    for taken in one.hypotheses:
        left = tuple(hypothesis for hypothesis in one.hypotheses if hypothesis is not taken)
        without = Obligation(one.suite, one.subject, one.claim, one.property, left, one.goal)
        assert answer(without) == ("unsat" if (one.claim, taken.name) in NOT_NEEDED else "sat"), taken.name


def test_the_lemma_of_the_least_member_begins_where_no_number_is(plant: Plant) -> None:
    with plant(least_element_lemma.__name__, "obligations", "holds(z3.IntVal(0))", "holds(z3.IntVal(1))"):
        first, _ = least_element_lemma.obligations("arithmetic")
    assert answer(first) == "sat"
