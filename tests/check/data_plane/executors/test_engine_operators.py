"""The calls of vLLM's and SGLang's operators, against the reference of what the operators are documented to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kvproof.check.data_plane.executors import REFERENCES, Executor, named, sglang_operators, vllm_operators
from kvproof.check.data_plane.executors.reference_operators import ReferenceOperators
from kvproof.check.data_plane.mappings import scenario
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.run import correctness
from kvproof.check.data_plane.run.correctness import CorrectnessConfig
from kvproof.check.data_plane.run.harness import DEFAULT_STREAM, NO_STREAM, OWN_STREAM, run_case
from kvproof.check.data_plane.run.results import CaseResult, CaseStatus, FindingKind
from kvproof.check.data_plane.simulated_cuda import simulated_cuda

ADAPTERS = {"vllm": vllm_operators, "sglang": sglang_operators}


def case(executor: Executor, layout: Layout, dtype: str, device: str = "cpu", stream: str = NO_STREAM) -> CaseResult:
    geometry = Geometry(layout, dtype, 4, 1 if layout is Layout.LATENT else 2, 16, 2, 12, 9)
    return run_case(executor, geometry, scenario("mixed", 0, 12, 9, 4), torch.device(device), stream)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("name", REFERENCES)
def test_the_calls_move_every_byte_in_each_layout_that_the_engine_has(name: str, layout: Layout, dtype: str) -> None:
    result = case(named(name), layout, dtype)
    if result.status is CaseStatus.SKIPPED:
        assert layout.value in result.reason
        assert layout not in (Layout.TWO_PLANES, Layout.LATENT)
    assert result.finding is None
    assert result.num_steps in (0, 12)


@pytest.mark.parametrize("stream", [DEFAULT_STREAM, OWN_STREAM])
@pytest.mark.parametrize("name", REFERENCES)
def test_the_calls_order_their_work_on_a_device(name: str, stream: str) -> None:
    with simulated_cuda():
        layout = Layout.TWO_PLANES if stream == OWN_STREAM else Layout.LATENT
        result = case(named(name), layout, "float16", "cuda", stream)
        assert (result.finding, result.num_steps) == (None, 12)


class InElements(ReferenceOperators):
    """Counts elements of two bytes where bytes are documented."""

    def swap_blocks(self, source: Any, target: Any, block_bytes: int, block_mapping: Any) -> None:
        super().swap_blocks(source, target, block_bytes // 2, block_mapping)

    def _transfer(self, layers: Any, sources: Any, targets: Any, item_size: int) -> None:
        super()._transfer(layers, sources, targets, item_size // 2)


class Backwards(ReferenceOperators):
    """Exchanges source and target."""

    def swap_blocks(self, source: Any, target: Any, block_bytes: int, block_mapping: Any) -> None:
        super().swap_blocks(target, source, block_bytes, block_mapping.flip(1))

    def _transfer(self, layers: Any, sources: Any, targets: Any, item_size: int) -> None:
        super()._transfer([pair[::-1] for pair in layers], targets, sources, item_size)


class LosesTheLast(ReferenceOperators):
    """Leaves out the last copy of a call."""

    def _copy_unordered(self, copies: Any) -> None:
        super()._copy_unordered(copies[:-1])


class ValuesFromKeys(ReferenceOperators):
    """Stores the keys as values."""

    def reshape_and_cache_flash(self, key: Any, value: Any, *more: Any) -> None:
        super().reshape_and_cache_flash(key, key, *more)

    def transfer_kv_per_layer(self, src_k: Any, dst_k: Any, src_v: Any, *more: Any) -> None:
        super().transfer_kv_per_layer(src_k, dst_k, src_k, *more)


class NextLayer(ReferenceOperators):
    """Reads each layer from the next one."""

    def _layers(self, sources: Any, targets: Any, num_layers: int) -> Any:
        return super()._layers(sources.view(torch.int64).roll(1).view(torch.uint64), targets, num_layers)


class OnOtherStream(ReferenceOperators):
    """Queues copies on a stream of its own, for which nothing waits."""

    def _copy_unordered(self, copies: Any) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            super()._copy_unordered(copies)


def with_operators(engine: str, operators: type[ReferenceOperators]) -> Executor:
    def prepare(caches: Caches) -> Any:
        return ADAPTERS[engine].prepare_with(operators([*caches.gpu_planes, *caches.cpu_planes]), caches)

    return Executor(operators.__name__, prepare)


@pytest.mark.parametrize(
    ("engine", "operators", "finding"),
    [
        ("vllm", InElements, "it must hold the key of block"),
        ("sglang", InElements, "it must hold the key of block"),
        ("vllm", Backwards, "of the CPU pool, layer 0, key, slot 0 holds the key of block 6 of the GPU pool"),
        ("sglang", Backwards, "of the GPU pool, layer 0, key, slot 0 holds the key of block 5 of the CPU pool"),
        ("vllm", LosesTheLast, "still holds what it held before the step"),
        ("sglang", LosesTheLast, "still holds what it held before the step"),
        ("vllm", ValuesFromKeys, "value, slot 0 holds the key of block"),
        ("sglang", ValuesFromKeys, "value, slot 0 holds the key of block"),
        ("sglang", NextLayer, "layer 0, key, slot 0 holds the key of block"),
    ],
)
def test_a_wrong_operator_is_found(engine: str, operators: type[ReferenceOperators], finding: str) -> None:
    found = case(with_operators(engine, operators), Layout.TWO_PLANES, "bfloat16").finding
    assert found is not None
    assert found.kind is FindingKind.WRONG_BYTES
    assert finding in found.text


@pytest.mark.parametrize("engine", ADAPTERS)
def test_an_operator_that_does_not_use_the_current_stream_is_found(engine: str) -> None:
    with simulated_cuda():
        found = case(with_operators(engine, OnOtherStream), Layout.TWO_PLANES, "bfloat16", "cuda", OWN_STREAM).finding
    assert found is not None
    assert found.kind in (FindingKind.LATE, FindingKind.RACE, FindingKind.WRONG_BYTES)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda made, one, far: made.swap_blocks(one, one, 8, far.int()), "block_mapping is torch.int32, not int64"),
        (lambda made, one, far: made.swap_blocks_batch(far[0], far[0], far[0]), "address 0 is in no tensor"),
        (
            lambda made, one, far: made.transfer_kv_per_layer_mla(one, one, far[0], far[0], 12),
            "item_size is 12, which is no multiple of 8",
        ),
        (
            lambda made, one, far: made.transfer_kv_direct([one], [one], far[0], far[0], 4),
            "2 tokens are not whole pages",
        ),
        (lambda made, one, far: made.transfer_kv_all_layer_mla(far[0], far[0], far[0], far[0], 8, 2), "no uint64"),
    ],
)
def test_what_an_operator_does_not_take_is_refused(call: Callable[..., object], text: str) -> None:
    one = torch.zeros((4, 8), dtype=torch.uint8)
    with pytest.raises(ValueError, match=text):
        call(ReferenceOperators([one]), one, torch.zeros((1, 2), dtype=torch.int64))


def test_a_report_says_that_the_kernels_did_not_run() -> None:
    plan = correctness._plan(CorrectnessConfig(executors=("vllm-reference", "engine"), mappings=("one",)))
    assert plan.notes[0] == (
        "vllm-reference ran the reference semantics of vLLM's operators, not the kernels: they remain unknown."
    )


def test_the_kernels_of_sglang_need_its_package_and_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry, found = Geometry(Layout.TWO_PLANES, "int8", 4, 1, 12, 1, 12, 9), iter([None, object(), object()])
    monkeypatch.setattr(sglang_operators, "find_spec", lambda name: next(found))
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert sglang_operators.unsupported(geometry, cpu) == "sgl_kernel cannot be imported on this machine"
    assert sglang_operators.unsupported(geometry, cpu) == "SGLang's operators need a CUDA device"
    assert "whole words of 8 bytes, and a token has 12" in sglang_operators.unsupported(geometry, cuda)
