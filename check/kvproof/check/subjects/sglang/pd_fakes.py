"""What stands in for the world around SGLang's engines of a pair: settings, clock, logs, metrics, what is missing.

Nothing here decides anything about KV. An option that is not set has the default that the release itself declares. What
is asked of a stand-in and is not listed here fails.
"""

import ast
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

from kvproof.check.protocol.fault_attribution import StandInError, is_fault_of_kvproof
from kvproof.check.protocol.pair import SIDE_NAMES
from kvproof.check.protocol.wire import Wire
from kvproof.check.subjects.loading.partial_import import Named
from kvproof.check.subjects.loading.strict import UNKNOWN, Strict
from kvproof.check.subjects.loading.stub_modules import StubObject, no

FEATURES = "is_", "support"  # how names of functions begin that say whether there is something
NAMESPACES = ("attn", "features", "kernel", "kv", "mamba")  # of options, below those that have a getter
START = 1000.0  # what the clock of the engines shows when that of the wire is 0


class Missing(Named):
    """Something of a module that is not imported. While modules are imported, it is a decorator, a base, a type.

    Afterwards it is false, and says that a feature is off; anything else that is asked of it is a fault of ours.
    """

    is_importing = True

    def __init__(self, name: str = "") -> None:
        self._name, self._constants = name, dict[str, Missing]()

    def of(self, name: str) -> "Missing":
        return Missing(name)

    def _answer(self, name: str) -> "Missing":
        if not Missing.is_importing:
            raise StandInError(f"the engine uses {name}, which kvproof does not stand in for")
        return Missing(name)

    def __getattr__(self, name: str) -> "Missing":
        if name.startswith("__"):
            raise AttributeError(name)
        if name.isupper():
            return self._constants.setdefault(name, Missing(name))
        return self._answer(f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if len(arguments) == 1 and isinstance(arguments[0], FunctionType | type):
            return arguments[0]
        if self._name.rpartition(".")[2].startswith(FEATURES):
            return False
        return self._answer(f"{self._name}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, one: Any) -> bool:
        return False

    def __getitem__(self, item: Any) -> "Missing":
        return self._answer(f"{self._name}[]")

    def __or__(self, other: Any) -> "Missing":
        return self

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False


class Sink:
    """Something that hears of what happens, and whose answers nobody needs: times, metrics, outputs."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **options: Any) -> None:
        return None

    def __bool__(self) -> bool:
        return False


class Times(Sink):
    """The times of a request, and how often it was tried again."""

    prefill_retry_count = 0


class Log:
    """A log that nobody reads; what is logged while an exception is handled that is a fault of kvproof is kept."""

    def __init__(self, *arguments: Any) -> None:
        """All logs are alike."""

    def note(self, *arguments: Any, **options: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and is_fault_of_kvproof(error) and not isinstance(error, GivenUp):
            UNKNOWN.append(str(error))

    debug = info = warning = error = exception = warning_once = info_once = note


class GivenUp(Exception):
    """Why a transfer of a room has failed, as SGLang's senders and receivers raise it."""

    is_from_another_rank = False


class Off:
    """An option that is off: in some releases a value, in others a method."""

    def __bool__(self) -> bool:
        return False

    def __call__(self) -> bool:
        return False


class Clock(Strict):
    """The clock of both engines of the pair whose turn it is."""

    def monotonic(self) -> float:
        return START + CURRENT.wire.now

    time = perf_counter = monotonic


class Current:
    """The pair whose turn it is, and the side of it that is called."""

    def __init__(self) -> None:
        self.clock, self.wire, self.side = Clock(), Wire(), 0
        self.settings: tuple[Any, Any] = (None, None)
        self.managers: dict[int, Any] = {}  # the transport of each side
        self.kv_args: Any = None  # the release's class
        self.features = (False, False)  # DECODE tells PREFILL of aborts; PREFILL says when nothing moves any more

    def setting(self, name: str) -> Any:
        """An option of the side that is called."""
        return getattr(self.settings[self.side], name)


class Settings(Strict):
    """The options of a server: those given, and the release's own defaults."""

    def __init__(self, given: dict[str, Any], defaults: dict[str, Any]) -> None:
        self.__dict__.update(defaults | given)


class Turned:
    """The options of the side whose turn it is, as every getter of them answers."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self if name in NAMESPACES else CURRENT.setting(name)


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


def given_to(side: int, page_size: int, caching: bool, num_tokens_max: int) -> dict[str, Any]:
    """The options of a side that differ from the defaults, or have none."""
    return {
        "disaggregation_mode": SIDE_NAMES[side],
        "disaggregation_transfer_backend": "mooncake",
        "disaggregation_decode_enable_radix_cache": caching and side == 1,
        "disaggregation_decode_retraction_backup": "cpu_tensor",
        "disable_radix_cache": not caching,
        "page_size": page_size,
        "chunked_prefill_size": num_tokens_max,
        "max_prefill_tokens": num_tokens_max,
        "num_reserved_decode_tokens": 1,
        "schedule_conservativeness": 1.0,
        "pp_max_micro_batch_size": 64,
        "attn_cp_rank": 0,
        "backend": "torch_native",
        "attn_cp_size": 1,
        "attn_dp_size": 1,
        "attn_tp_group": StubObject(cpu_group=None),
        "attn_tp_rank": 0,
        "attn_tp_size": 1,
        "dp_rank": None,
        "gpu_id": 0,
        "pp_group": StubObject(is_last_rank=True),
        "enable_mamba_extra_buffer": Off(),
        "enable_mamba_extra_buffer_lazy": Off(),
        "is_config_namespace_published": no,
        "pp_rank": 0,
        "tp_rank": 0,
    }


CURRENT = Current()
TURNED = Turned()
