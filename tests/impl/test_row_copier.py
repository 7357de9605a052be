"""The kernel that copies many rows copies just these. Without a GPU it runs in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvproof.impl.row_copier import row_copier

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")

# Rows of one word, of fewer words than a tile, of a tile, and of several tiles; rows side by side and apart, also with
# other distances in the source and in the target.
INTERPRETED = """
import json, torch
from kvproof.impl import row_copier

row_copier._WORDS_MAX = 8
pairs = [(5, 2), (0, 6), (3, 3), (5, 0)]
same = []
for num_words, source_step, target_step in [(1, 1, 1), (5, 5, 7), (8, 16, 8), (21, 21, 30), (22, 22, 30)]:
    wholes = [torch.arange(7 * step).view(7, step) + first for step, first in [(source_step, 0), (source_step, 1000)]]
    sources = [whole[:, :num_words] for whole in wholes]
    into = [torch.full((7, target_step), -1) for _ in sources]
    wanted = [whole.clone() for whole in into]
    for source, target in zip(sources, wanted):
        for here, there in pairs:
            target[there, :num_words] = source[here]
    targets = [whole[:, :num_words] for whole in into]
    row_copier.RowCopier(sources, targets, torch.device("cpu")).move(pairs)
    same.append(all(map(torch.equal, into, wanted)))
print(json.dumps([same, row_copier.refusal(torch.device("cpu"))]))
"""


def run(program: str, *arguments: str, **environment: str) -> object:
    given = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=given | {"OMP_NUM_THREADS": "1"} | environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_triton
def test_the_kernel_copies_the_rows_of_the_pairs_and_nothing_else() -> None:
    assert run(INTERPRETED, TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="") == [[True] * 5, ""]


COMPILED = """
import json, sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kvproof.impl.row_kernel import copy_rows

types = {"planes": "*i64", "pairs": "*i64", "num_words": "i32", "WORDS": "constexpr", "IS_WIDE": "constexpr"}
num_wide = []
for is_wide in False, True:
    tile, even = {"WORDS": 1024, "IS_WIDE": is_wide}, {(2,): [["tt.divisibility", 16]]}
    made = triton.compile(ASTSource(copy_rows, types, tile, even), target=GPUTarget("cuda", 90, 32))
    num_wide.append(made.asm["ptx"].count("st.global.v2.b64"))
print(json.dumps(num_wide))
"""


@needs_triton
def test_the_kernel_compiles_for_a_hopper_gpu_and_moves_two_words_at_once_where_it_can(tmp_path: Path) -> None:
    assert run(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == [0, 4]


def test_in_main_memory_there_is_no_copier() -> None:
    planes = [torch.zeros(3, 4, dtype=torch.int64)]
    assert row_copier(planes, planes) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_cuda_there_is_a_copier_only_for_whole_words_in_pinned_memory() -> None:
    on_device = torch.zeros(3, 4, dtype=torch.int64, device="cuda")
    assert row_copier([on_device], [torch.zeros_like(on_device, device="cpu", pin_memory=True)]) is not None
    assert row_copier([on_device], [torch.zeros_like(on_device, device="cpu")]) is None
    assert row_copier([on_device.view(torch.uint8)[:, :31]], [on_device.view(torch.uint8)[:, :31]]) is None
