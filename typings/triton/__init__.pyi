"""Types of the part of triton that kvproof's kernels use: the package ships none."""

from collections.abc import Callable
from typing import Any

class JITFunction:
    def __init__(
        self,
        fn: Any,
        version: Any = None,
        do_not_specialize: Any = None,
        do_not_specialize_on_alignment: Any = None,
        debug: Any = None,
        noinline: Any = None,
        repr: Any = None,
        launch_metadata: Any = None,
    ) -> None: ...
    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # within another kernel

def jit(
    fn: Callable[..., None] | None = None,
    *,
    version: Any = None,
    repr: Any = None,
    launch_metadata: Any = None,
    do_not_specialize: Any = None,
    do_not_specialize_on_alignment: Any = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> JITFunction: ...
