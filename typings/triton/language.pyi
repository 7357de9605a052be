"""The language of triton's kernels: all values are tensors of its own compiler."""

from typing import Any

class constexpr:  # noqa: N801
    value: int
    def __init__(self, value: int) -> None: ...
    def __index__(self) -> int: ...

int32: Any
int64: Any
uint64: Any

# Kernels written in triton itself: called within a kernel, as sum(values, axis).
sum: Any
max: Any
zeros: Any

pointer_type: Any

def program_id(axis: int) -> Any: ...
def arange(start: int, end: Any) -> Any: ...
def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> Any: ...
def full(shape: Any, value: Any, dtype: Any) -> Any: ...
def multiple_of(input: Any, values: Any) -> Any: ...
def max_contiguous(input: Any, values: Any) -> Any: ...
def store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> Any: ...
def where(condition: Any, x: Any, y: Any) -> Any: ...
def atomic_add(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Any: ...
