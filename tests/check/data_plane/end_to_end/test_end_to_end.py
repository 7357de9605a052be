"""The decoder generates the same tokens with and without pages, and different ones if a mapping is wrong."""

import pytest
import torch

from kvproof.check.data_plane.end_to_end.comparing import Fate, difference, run_end_to_end
from kvproof.check.data_plane.end_to_end.engine import Completion
from kvproof.check.data_plane.end_to_end.exact_decoder import ExactDecoder, Geometry, NoPages, choose, mixed
from kvproof.check.data_plane.end_to_end.fault_injection import FAULTS, Fault
from kvproof.check.data_plane.end_to_end.workloads import WORKLOADS
from kvproof.impl import KVLayout

CPU = torch.device("cpu")


def test_paging_changes_no_token_of_any_workload_and_every_workload_does_what_it_is_for() -> None:
    result = run_end_to_end(seed=1, faults=())
    assert [workload.name for workload in result.workloads] == list(WORKLOADS)
    assert {
        workload.name: (workload.differences, workload.missing, workload.refusal) for workload in result.workloads
    } == {name: ([], [], "") for name in WORKLOADS}
    assert result.is_right
    assert sum(workload.num_tokens for workload in result.workloads) > 800


def test_every_planted_fault_changes_tokens_or_is_refused() -> None:
    result = run_end_to_end(seed=2)
    assert {fault.name: fault.is_caught for fault in result.faults} == {fault.id: True for fault in FAULTS}
    assert {fault.fate for fault in result.faults} == {Fate.CHANGED_TOKENS, Fate.REFUSED}


def test_a_fault_that_does_nothing_is_missed_and_one_without_a_place_is_not_reached() -> None:
    harmless = Fault("the order of pairs", lambda pairs, _: pairs[::-1], "swap", "swap out")
    nowhere = Fault("nothing is copied here", lambda pairs, _: [], "swap", "copy")
    result = run_end_to_end(seed=1, workloads=["swap"], faults=[harmless, nowhere])
    assert [fault.fate for fault in result.faults] == [Fate.MISSED, Fate.NOT_REACHED]
    assert result.num_caught == 0


@pytest.mark.parametrize(
    ("dtype", "layout"),
    [
        (torch.float32, KVLayout.HND),
        (torch.float16, KVLayout.NHD),
        (torch.float8_e5m2, KVLayout.LATENT),
        (torch.float8_e4m3fn, KVLayout.TWO_PLANES),
        (torch.int8, KVLayout.HND),
    ],
)
def test_any_layout_holds_any_type_of_keys_and_values_exactly(dtype: torch.dtype, layout: KVLayout) -> None:
    result = run_end_to_end(seed=3, dtype=dtype, layout=layout, workloads=["beam"], faults=())
    assert result.is_right, result.workloads


def test_a_token_that_the_model_without_pages_would_not_generate_is_reported_with_its_position() -> None:
    decoder = ExactDecoder(Geometry(), 5, CPU)
    prompt, salts = [3, 1, 4], [0, 99, 0]
    tokens: list[int] = []
    for salt in salts:
        tokens.append(choose(decoder.scores([*prompt, *tokens], 0, NoPages())[-1], salt))
    assert difference(decoder, 7, Completion(prompt, salts, tokens)) is None
    wrong = [tokens[0], (tokens[1] + 1) % 97, tokens[2]]
    found = difference(decoder, 7, Completion(prompt, salts, wrong))
    assert found is not None
    assert (found.position, found.expected, found.actual) == (4, tokens[1], wrong[1])
    assert "sequence 7 has token" in str(found)


@pytest.mark.parametrize("layer", [0, 1])
def test_one_element_of_one_key_changes_every_score(layer: int) -> None:
    class Spoilt(NoPages):
        def read(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
            keys, values = (part.clone() for part in self.kept)
            if at == layer:
                keys[2, 1, 3] ^= 1
            return keys, values

    decoder = ExactDecoder(Geometry(), 1, CPU)
    right, spoilt = (decoder.scores([5, 6, 7, 8], 0, memory())[-1] for memory in (NoPages, Spoilt))
    assert int((right == spoilt).sum()) == 0


def test_one_bit_of_a_word_changes_about_half_the_bits_of_the_mixed_word() -> None:
    word = 1234567890123456789
    flipped = torch.tensor([word, *(word ^ (1 << bit) for bit in range(62))])
    first, *rest = mixed(flipped).tolist()
    changed = [bin((first ^ other) & (2**64 - 1)).count("1") for other in rest]
    assert min(changed) > 12
    assert 28 < sum(changed) / len(changed) < 36
