"""What `kvproof.check.data_plane.compare.triton_kernel` uses of triton, which ships no types."""

from collections.abc import Callable

class JITFunction:
    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]: ...

def jit(function: Callable[..., None]) -> JITFunction: ...
