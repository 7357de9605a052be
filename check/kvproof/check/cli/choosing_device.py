"""Where the blocks of the data plane lie: `--device`, settled."""

from typing import Annotated

import typer

from kvproof.check.runs.errors import UsageError

DeviceOption = Annotated[
    str,
    typer.Option("--device", metavar="auto|cpu|cuda", help="Where the blocks lie; auto is CUDA if there is any."),
]


def settled_device(asked: str) -> tuple[str, dict[str, str], str]:
    """The device, what to say of the machine, and a note. Raises UsageError."""
    if asked not in ("auto", "cpu", "cuda"):
        raise UsageError(f"there is no device {asked!r}; --device is auto, cpu or cuda")
    try:
        import torch
    except ImportError as error:
        raise UsageError(f"torch cannot be imported ({error}); the data plane needs torch 2.11 or newer") from error
    from kvproof.check.data_plane.device.environment import UnfitTorch, environment, require_torch

    try:
        require_torch(torch.__version__)
    except UnfitTorch as error:
        raise UsageError(str(error)) from error
    has_cuda = torch.cuda.is_available()
    if asked == "cuda" and not has_cuda:
        raise UsageError("there is no CUDA device that torch can use; take --device cpu, or auto")
    chosen = "cuda" if asked != "cpu" and has_cuda else "cpu"
    note = "There is no CUDA device: the CPU is used, and both pools lie in main memory." if asked == "auto" else ""
    return chosen, environment(torch.device(chosen)), note if chosen == "cpu" else ""
