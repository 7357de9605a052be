"""The C reader answers each firing, and writes each cell, as the Python reader does."""

from dataclasses import replace

import pytest

from kvproof.audit.crosscheck.c_reader import compare_firings
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.c_reader import specification
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC

EVERY_RULE = Scope(
    8, 6, 4, 6, 2, caching=True, lookahead=2, swap=True, window=3, num_flights=3, reserving=True, level="rules"
)
WALKED = (
    EVERY_RULE,
    replace(EVERY_RULE, window=0, num_gpu_blocks=4, num_host_blocks=3, num_seqs=3, num_tokens=4, block_size=1),
    replace(EVERY_RULE, window=-2, num_gpu_blocks=4, num_host_blocks=0, num_seqs=3, num_flights=1, swap=False),
    Scope(
        3, 3, 3, 2, 1, caching=True, swap=True, level="rules"
    ),  # few tokens: cached blocks are hit, shared, exchanged
)


def test_firings_answer_and_write_the_same_in_both_readers() -> None:
    compared = compare_firings(SpecificationInC(WALKED[1]), 60, seed=1)
    assert compared.num_cells > 20_000
    assert compared.num_refused > 100


@pytest.mark.long
def test_ten_million_cells_are_the_same_in_both_readers() -> None:
    found = [compare_firings(SpecificationInC(scope), 4_000, seed) for seed, scope in enumerate(WALKED)]
    assert sum(one.num_cells for one in found) > 10_000_000
    fired = sum((one.fired for one in found), found[0].fired - found[0].fired)
    assert set(specification.translated()[0].rules) - fired.keys() == set()
