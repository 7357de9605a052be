"""vLLM's own V0 scheduler, with its block manager, importable with torch and msgspec: releases 0.6.5 to 0.10.2.

The scheduler, `vllm.sequence` (requests, their sequences and stages) and the block manager are the release's own. What
they take of the rest is what `vllm_v0` stands in for, a cache of Python objects (answered by one that caches nothing),
and names that occur in annotations only. The clock that the scheduler reads is one that the adapter turns.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvproof.check.subjects.loading import EngineError, download, partial_import
from kvproof.check.subjects.vllm.v0_loader import STAND_INS as OF_THE_MANAGER


class NoObjectCache:
    """A cache of objects that makes a new one each time."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.get_object = make

    def reset(self) -> None:
        """Nothing is kept."""


class Named:
    """A stub type for annotations; an instance keeps its arguments as attributes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments = arguments

    def __bool__(self) -> bool:
        return bool(any(self.arguments))


class InputsAdapter(SimpleNamespace):
    """The inputs of a sequence as attributes, until 0.8.4."""

    prompt_embeds = None
    token_type_ids: tuple[int, ...] = ()
    multi_modal_data = multi_modal_placeholders = mm_processor_kwargs = prompt = None
    multi_modal_hashes: tuple[str, ...] = ()

    def __init__(self, inputs: dict[str, Any]) -> None:
        super().__init__(prompt_token_ids=inputs["prompt_token_ids"])


STAND_INS: dict[str, dict[str, Any]] = {
    **{name: names for name, names in OF_THE_MANAGER.items() if name != "sequence"},
    "config": dict.fromkeys(("CacheConfig", "LoRAConfig", "SchedulerConfig"), Named),
    "config.lora": {"LoRAConfig": Named},
    "inputs": {"SingletonInputs": dict, "SingletonInputsAdapter": InputsAdapter},
    "lora": {},
    "lora.request": {"LoRARequest": Named},
    "multimodal": dict.fromkeys(("MultiModalDataDict", "MultiModalKwargs", "MultiModalPlaceholderDict"), Named),
    "pooling_params": {"PoolingParams": Named},
    "prompt_adapter": {},
    "prompt_adapter.request": {"PromptAdapterRequest": Named},
    "sampling_params": {"SamplingParams": Named, "RequestOutputKind": SimpleNamespace(DELTA=object())},
    "spec_decode": {},
    "spec_decode.metrics": {"SpecDecodeWorkerMetrics": Named},
    "utils": {**OF_THE_MANAGER["utils"], "PyObjectCache": NoObjectCache},
}


def import_scheduler(version: str, cache: Path | None = None) -> SimpleNamespace:
    """The modules of a release's scheduler and of its sequences, from its unpacked sources. Raises EngineError."""
    module = partial_import.mount("vllm", download.find("vllm", version, cache), STAND_INS)
    manager = getattr(module("core.block_manager"), "SelfAttnBlockSpaceManager", None)
    if not hasattr(manager, "get_num_cached_tokens"):
        raise EngineError(f"the scheduler of vLLM {version} is driven from 0.6.5 on; `vllm-v0=={version}` is there")
    return SimpleNamespace(scheduler=module("core.scheduler"), sequence=module("sequence"))
