"""The operators of engines are bound as the release declares them, and sources without them are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.gpu_kernels import SGLANG, VLLM, Unbuildable, binding, release_of

from benchmarks import gpu_kernels

HEADER = """
void other(int a);
void swap_blocks(torch::Tensor& src,
                 int64_t bytes);
void swap_blocks_batch(const torch::Tensor& src_ptrs);
void reshape_and_cache_flash(torch::Tensor& key);
"""


def test_an_operator_is_declared_as_in_the_release_and_bound_by_its_name() -> None:
    text = binding(VLLM, HEADER)
    assert "void swap_blocks(torch::Tensor& src,\n                 int64_t bytes);" in text
    assert "other" not in text
    assert text.count("ops.def(") == 3
    assert 'TORCH_LIBRARY(_C_cache_ops, ops) {\n  ops.def("swap_blocks", &swap_blocks);' in text


def test_a_release_without_an_operator_is_refused() -> None:
    with pytest.raises(Unbuildable, match=r"csrc/cache.h does not declare swap_blocks_batch"):
        binding(VLLM, HEADER.replace("swap_blocks_batch", "swap_blocks_many"))


def test_sources_are_those_of_a_release_of_the_engine(tmp_path: Path) -> None:
    with pytest.raises(Unbuildable, match=r"has no csrc/kvcacheio/transfer.cu"):
        release_of(SGLANG, tmp_path)
    (tmp_path / "csrc/kvcacheio").mkdir(parents=True)
    (tmp_path / SGLANG.kernels).write_text("")
    with pytest.raises(Unbuildable, match=r"pyproject.toml does not say which release this is"):
        release_of(SGLANG, tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "sglang-kernel"\nversion = "0.4.4"\n')
    assert release_of(SGLANG, tmp_path) == "0.4.4"


def test_a_compiler_that_is_missing_or_fails_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / VLLM.kernels).write_text("")
    (tmp_path / VLLM.declared).write_text(HEADER)
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.1\nVersion: 0.22.1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = ["--vllm", str(tmp_path), "--torch", str(tmp_path), "--to", str(tmp_path / "to")]
    assert gpu_kernels.main(arguments) == 2
    assert "nvcc is not installed; it is part of CUDA's toolkit" in capsys.readouterr().err
    (tmp_path / "nvcc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "nvcc").chmod(0o755)
    assert gpu_kernels.main(arguments) == 2
    assert "nvcc failed; it says why above" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()
