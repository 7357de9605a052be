"""vLLM's own V1 scheduler, with its KV cache manager, importable with torch and msgspec.

The scheduler, its queues, its outputs and `vllm.v1.request` are the release's own, as is what `v1_loader` imports.
The rest of vLLM that they name is off here, and is replaced by stub modules, listed by name: in them every name is a
class that accepts any arguments and does nothing. Where behaviour is needed, a stand-in has it: a list that is only
read is the list itself, events are published to nobody, no output has a structure.
"""

import contextlib
import importlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kvproof.check.protocol.fault_attribution import OPTIONS_LEFT_OUT
from kvproof.check.subjects.loading import EngineError, download, partial_import
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.vllm.v1_loader import STAND_INS as OF_THE_MANAGER
from kvproof.check.subjects.vllm.v1_loader import UTILS


class Hollow:
    """A stub type: instances can be made, and do nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass


def yes(*arguments: Any, **options: Any) -> bool:
    """A stub function that agrees."""
    return True


def all_of(request: Any, tokens: list[int]) -> list[int]:
    """The tokens that a grammar allows: all."""
    return tokens


class NoStructure:
    """Outputs have no structure, of a request and for all requests: there is no grammar, and every token is right."""

    from_sampling_params = staticmethod(nothing)
    should_advance = staticmethod(no)
    accept_tokens = staticmethod(yes)
    validate_tokens = staticmethod(all_of)


class SupportsHMA:
    """The type of connectors for several KV cache groups."""


class PrefillStats:
    """Figures that nobody reads."""

    num_cached_tokens = 0
    set = finalize = staticmethod(nothing)


class Options:
    """A configuration: what is given, and None, which is off, for everything else."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        OPTIONS_LEFT_OUT.add(name)
        return None


HOLLOW = (
    "compilation",
    "compilation.cuda_graph",
    "config.ec_manager_config",
    "config.kv_events",
    "distributed.aux_output_connector",
    "distributed.aux_output_connector.connector",
    "distributed.ec_transfer",
    "distributed.ec_transfer.ec_connector",
    "distributed.ec_transfer.ec_connector.base",
    "distributed.ec_transfer.ec_connector.factory",
    "distributed.ec_transfer.ec_connector.metrics",
    "distributed.kv_transfer",
    "distributed.kv_transfer.kv_connector",
    "distributed.kv_transfer.kv_connector.base",
    "distributed.kv_transfer.kv_connector.v1.base",
    "distributed.kv_transfer.kv_connector.v1.metrics",
    "lora",
    "lora.request",
    "model_executor",
    "model_executor.layers",
    "model_executor.layers.fused_moe",
    "model_executor.layers.fused_moe.routed_experts_capturer",
    "multimodal.encoder_budget",
    "multimodal.inputs",
    "outputs",
    "pooling_params",
    "sampling_params",
    "v1.attention.backend",
    "v1.kv_hints",
    "v1.metrics.perf",
    "v1.outputs",
    "v1.serial_utils",
    "v1.spec_decode",
    "v1.spec_decode.dynamic",
    "v1.spec_decode.dynamic.utils",
    "v1.spec_decode.metrics",
    "v1.structured_output.utils",
)


def length_of(tokens: list[int] | None, embeds: Any) -> int:
    """How long a prompt is; here it has tokens."""
    return len(tokens or ())


def zero(model_config: Any) -> int:
    """The length of the longest encoder input; a model that takes text only has no encoder."""
    return 0


def features_of(features: list[Any], *others: Any, **options: Any) -> list[Any]:
    """The images of a request; there are none whose data could be left out."""
    return features


def connector_of(config: Any, **options: Any) -> Any:
    """The connector that the adapter gave in the configuration."""
    return config.kv_transfer_config.connector


def itself(value: Any) -> Any:
    """The value itself: a stub for functions that return a view of it or mark it."""
    return value


def no_context(name: str) -> contextlib.AbstractContextManager[None]:
    """Nothing is recorded."""
    return contextlib.nullcontext()


def blocks_of_requests(output: Any) -> Iterator[tuple[str, Any, bool]]:
    """For each request of a step its new blocks, and whether they are its whole table.

    Source: `yield_req_data` of vLLM's `kv_connector/utils.py`, which has nothing else that is needed here.
    """
    for request in output.scheduled_new_reqs:
        yield request.req_id, request.block_ids, True
    known = output.scheduled_cached_reqs
    for name, blocks in zip(known.req_ids, known.new_block_ids, strict=True):
        yield name, blocks, name in known.resumed_req_ids


class NoStatistics:
    """Figures of a connector that nobody reads."""

    def __getattr__(self, name: str) -> Any:
        return nothing


KV_CONNECTORS = "distributed.kv_transfer.kv_connector.v1"
CONNECTOR = f"{KV_CONNECTORS}.offloading"
SIMPLE_CONNECTOR = f"{KV_CONNECTORS.replace('.', '/')}/simple_cpu_offload_connector.py"
FLUSHES_NEW = "store_jobs.pop("  # in a worker that begins, and waits for, a store that its own step flushes
WINDOW_SIZES = "get_sliding_window_size_in_chunks", "get_sliding_window_size_in_blocks"
CONNECTORS = StubObject(create_connector=connector_of)
PLATFORM = StubObject(register_custom_kv_cache_specs=nothing, is_xpu=no)
MORE_UTILS = {**UTILS, "is_list_of": isinstance, "length_from_prompt_token_ids_or_embeds": length_of}
STAND_INS: dict[str, dict[str, Any]] = {
    **{name: names for name, names in OF_THE_MANAGER.items() if name not in ("v1.request", "v1.utils", "config")},
    "_bc_linter": {"bc_linter_include": itself},
    "config": {**OF_THE_MANAGER["config"], "KVEventsConfig": Hollow},
    "config.kv_transfer": {**OF_THE_MANAGER.get("config.kv_transfer", {}), "KVTransferConfig": Hollow},
    "distributed.kv_transfer.kv_connector.factory": {"KVConnectorFactory": CONNECTORS},
    "distributed.kv_transfer.kv_connector.v1": {
        "KVConnectorBase_V1": Hollow,
        "KVConnectorRole": StubObject(SCHEDULER=0),
        "SupportsHMA": SupportsHMA,
        "supports_hma": bool,
    },
    "distributed.kv_transfer.kv_connector.utils": {"yield_req_data": blocks_of_requests},
    f"{CONNECTOR}.metrics": {
        "OffloadingConnectorStats": NoStatistics,
        "_ConnectorMetricName": Options(),
        "_TransferMetricName": Options(),
    },
    "v1.metrics.cache_hit_source": {"CacheHitSource": Hollow},
    "platforms": {"current_platform": PLATFORM},
    "distributed.kv_events": {
        **OF_THE_MANAGER["distributed.kv_events"],
        "MEDIUM_STORAGE": "STORAGE",
        "EventPublisherFactory": StubObject(create=lambda *options: StubObject(publish=nothing)),
        "KVEventBatch": StubObject,
    },
    "multimodal": {
        "MULTIMODAL_REGISTRY": StubObject(supports_multimodal_inputs=no, get_encdec_max_encoder_len=zero),
        "MultiModalKwargs": Hollow,
        "MultiModalKwargsItem": Hollow,
        "MultiModalRegistry": Hollow,
    },
    "multimodal.utils": {**OF_THE_MANAGER["multimodal.utils"], "strip_covered_mm_data": features_of},
    "utils": MORE_UTILS,
    "v1.metrics.stats": {
        **OF_THE_MANAGER["v1.metrics.stats"],
        "KV_FETCH_COMPLETED_WAITING": 0,
        "KV_FETCH_IN_PROGRESS": 1,
        "KV_FETCH_STAGES": (),
        "KV_FETCH_WAITING_TO_START": 2,
        "PrefillStats": PrefillStats,
        "RequestSpecDecodeMetrics": Hollow,
        "SchedulerStats": Hollow,
    },
    "v1.structured_output": {"StructuredOutputGrammar": Hollow, "StructuredOutputManager": NoStructure},
    "v1.structured_output.request": {"StructuredOutputGrammar": Hollow, "StructuredOutputRequest": NoStructure},
    "v1.utils": {
        "ConstantList": itself,
        "record_function_or_nullcontext": no_context,
        "tensor_data": Hollow,
    },
}


def import_offloading() -> StubObject | None:
    """The modules of the OffloadingConnector in the release that `import_modules` has mounted.

    None before 0.21, where its worker reports requests and not jobs.
    """
    module = partial(partial_import.module_of, "vllm")
    if not partial_import.has_module("vllm", f"{CONNECTOR}.common"):
        return None
    common = module(f"{CONNECTOR}.common")
    if not hasattr(common, "TransferJob"):
        return None
    connector = module(f"{CONNECTOR}.scheduler")
    sizes = module(f"{CONNECTOR}.config") if partial_import.has_module("vllm", f"{CONNECTOR}.config") else connector
    return StubObject(
        connector=connector,
        common=common,
        manager=module("v1.kv_offload.cpu.manager"),
        flushes_new_stores=FLUSHES_NEW in Path(connector.__file__).with_name("worker.py").read_text(),
        num_window_chunks=next(
            getattr(of, name) for of in (sizes, connector) for name in WINDOW_SIZES if hasattr(of, name)
        ),
    )


def import_simple_offload(version: str) -> StubObject:
    """The modules of the SimpleCPUOffloadConnector, from the unpacked sources of a release. Raises EngineError."""
    partial_import.mount("vllm", download.find("vllm", version), STAND_INS, HOLLOW, Hollow)
    return simple_offload_modules()


def simple_offload_modules() -> StubObject:
    """The modules of the SimpleCPUOffloadConnector in the release that is mounted."""
    module = partial(partial_import.module_of, "vllm")
    manager = module("v1.simple_kv_offload.manager")
    return StubObject(
        manager=manager,
        metadata=module("v1.simple_kv_offload.metadata"),
        interface=module("v1.kv_cache_interface"),
        pool=module("v1.core.block_pool"),
        utils=module("v1.core.kv_cache_utils"),
        dtype=importlib.import_module("torch").float16,
        steps_for_stores="has_pending_push_work" in (Path(manager.__file__).parents[2] / SIMPLE_CONNECTOR).read_text(),
    )


def import_modules(version: str, cache: Path | None = None) -> StubObject:
    """The modules of a release's scheduler, from its unpacked sources. Raises EngineError.

    `ahead` is the scheduler that goes on while a step is under way.
    """
    folder = download.find("vllm", version, cache)
    paths = {name: str(folder / "vllm" / name.replace(".", "/")) for name in (KV_CONNECTORS, CONNECTOR)}
    stand_ins = STAND_INS | {name: {**STAND_INS.get(name, {}), "__path__": [path]} for name, path in paths.items()}
    module = partial_import.mount("vllm", folder, stand_ins, HOLLOW, Hollow)
    modules = StubObject(
        scheduler=module("v1.core.sched.scheduler"),
        ahead=module("v1.core.sched.async_scheduler"),
        request=module("v1.request"),
        interface=module("v1.kv_cache_interface"),
        utils=module("v1.core.kv_cache_utils"),
    )
    if not hasattr(modules.utils, "get_request_block_hasher"):
        raise EngineError(f"the scheduler of vLLM {version} is driven from 0.11.0 on; `vllm-v1=={version}` is there")
    return modules
