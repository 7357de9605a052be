"""The watermark is a share given as a fraction of the pool: the one number of admission that passes through floats."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.impl.block_manager import SelfAttnBlockSpaceManager


@settings(max_examples=200, deadline=None, derandomize=True)
@given(share=st.floats(min_value=0, max_value=1), num_blocks=st.integers(min_value=0, max_value=300))
def test_the_watermark_is_never_below_nothing_nor_above_the_pool(share: float, num_blocks: int) -> None:
    held_back = SelfAttnBlockSpaceManager(16, num_blocks, 0, watermark=share).watermark_blocks
    assert 0 <= held_back <= num_blocks
    assert held_back <= share * num_blocks < held_back + 1
