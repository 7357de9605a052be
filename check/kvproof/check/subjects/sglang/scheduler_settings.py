"""What the two subjects with SGLang's scheduler share of the world around it: whose turn it is, time, options, logs.

An option that is not set has the default that the release itself declares. What is asked of a stand-in and is not
listed here fails, also where the engine catches every exception (`strict`).
"""

import ast
import sys
from pathlib import Path
from typing import Any

import torch

from kvproof.check.protocol.fault_attribution import is_fault_of_kvproof
from kvproof.check.protocol.wire import Wire
from kvproof.check.subjects.loading.strict import UNKNOWN, Strict
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing

NAMESPACES = ("attn", "features", "kernel", "kv", "mamba")  # of options, below those that have a getter
START = 1000.0  # what the clock of the engines shows when that of the wire is 0
LOOK = 1e-9  # seconds


class GivenUp(Exception):
    """Why a transfer of a room has failed, as SGLang's senders and receivers raise it."""

    is_from_another_rank = False


class Log:
    """A log that nobody reads; what is logged while an exception is handled that is a fault of kvproof is kept."""

    def note(self, *arguments: Any, **options: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and is_fault_of_kvproof(error) and not isinstance(error, GivenUp):
            UNKNOWN.append(str(error))

    debug = info = warning = error = exception = warning_once = info_once = note


class Off:
    """An option that is off: in some releases a value, in others a method."""

    def __bool__(self) -> bool:
        return False

    def __call__(self) -> bool:
        return False


class Clock(Strict):
    """The clock of the engines; for a pair that of its wire. Each look is a little later, as caches order by time."""

    num_looks = 0

    def monotonic(self) -> float:
        self.num_looks += 1
        return START + CURRENT.wire.now + self.num_looks * LOOK

    time = perf_counter = monotonic

    @staticmethod
    def sleep(seconds: float) -> None:
        """Time passes when the judge says so."""


class Distributed:
    """What is called of `torch.distributed`: each engine is alone."""

    ReduceOp = torch.distributed.ReduceOp
    get_world_size = staticmethod(lambda group=None: 1)
    all_reduce = staticmethod(nothing)


class Settings(Strict):
    """The options of a server: those given, and the release's own defaults."""

    def __init__(self, given: dict[str, Any], defaults: dict[str, Any]) -> None:
        self.__dict__.update(defaults | PLAIN | given)


class Current:
    """The engine, or the pair, whose turn it is, and the side of it that is called."""

    def __init__(self) -> None:
        self.clock, self.wire, self.side = Clock(), Wire(), 0
        self.settings: tuple[Any, ...] = ()  # of each side
        self.managers: dict[int, Any] = {}  # the transport of each side
        self.kv_args: Any = None  # the release's class
        self.features = (False, False)  # DECODE tells PREFILL of aborts; PREFILL says when nothing moves any more


class Turned:
    """The options of the side whose turn it is, as every getter of them answers."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self if name in NAMESPACES else getattr(CURRENT.settings[CURRENT.side], name)


def turned(*arguments: Any) -> Any:
    """The options of the side that is called."""
    return TURNED


def defaults_of(root: Path) -> dict[str, Any]:
    """The defaults of a release's options, as far as they are constants. root: of its package."""
    files = [root / "srt" / "server_args.py", *sorted((root / "srt" / "arg_groups").rglob("*.py"))]
    found: dict[str, Any] = {}
    for file in files:
        for one in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None:
                try:
                    found.setdefault(one.target.id, ast.literal_eval(one.value))
                except ValueError:
                    continue  # it is computed
    return found


CURRENT = Current()
TURNED = Turned()
RANKS = {f"attn_{kind}_rank": 0 for kind in ("cp", "dp", "tp")} | {
    f"attn_{kind}_size": 1 for kind in ("cp", "dp", "tp")
}
PLAIN: dict[str, Any] = (
    RANKS
    | {  # of one rank without anything special; some options have no constant as their default
        "attn_dcp_size": 1,
        "attn_tp_group": StubObject(cpu_group=None),
        "backend": "torch_native",
        "dcp_enabled": False,
        "dcp_size": 1,
        "dp_rank": None,
        "enable_mamba_extra_buffer": Off(),
        "enable_mamba_extra_buffer_lazy": Off(),
        "gpu_id": 0,
        "is_config_namespace_published": no,
        "pp_group": StubObject(is_last_rank=True),
        "pp_max_micro_batch_size": 1 << 10,
        "pp_rank": 0,
        "tp_rank": 0,
    }
)
