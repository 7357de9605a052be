"""A kernel that writes far outside of its tensor, for `gpu_movers`. Importing this module imports triton."""

import triton
import triton.language as tl


@triton.jit
def write_outside(start, distance):  # type: ignore[no-untyped-def]
    """Write one element `distance` elements behind the start of a tensor."""
    tl.store(start + distance, tl.load(start))
