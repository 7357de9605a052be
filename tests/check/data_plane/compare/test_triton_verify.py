"""The Triton kernel agrees with the comparison in main memory. Without a GPU it runs in Triton's interpreter."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kvproof.check.data_plane.compare import compare, triton_verify

# Shapes: less than a tile, not a power of two, many tiles of rows, two tiles of words, rows apart in a wider memory.
# Then words more than 2^31 words behind the first one. One process does both, as importing triton takes seconds.
INTERPRETED = """
import json, sys, numpy, torch
from kvproof.check.data_plane.compare import compare, triton_verify
from kvproof.check.data_plane.memory import pattern

def pattern_of(rows, words, stride):
    labels, columns = numpy.arange(rows, dtype=numpy.uint64) << numpy.uint64(37), pattern.word_keys(words)
    whole = torch.zeros(rows, stride, dtype=torch.int64)
    memory = whole[:, :words]
    memory.copy_(torch.from_numpy((pattern.row_keys(labels)[:, None] ^ columns).view(numpy.int64)))
    return memory, labels, columns

triton_verify.PIECE_BYTES = 40 * 1024  # so that the larger shapes are compared in pieces
shapes = []
for rows, words, stride, spoilt in [
    (3, 5, 5, [(2, 4)]),
    (37, 72, 72, [(0, 0), (0, 71), (36, 17)]),
    (600, 16, 16, [(599, 15), (256, 3), (255, 3)]),
    (9, 1500, 1500, [(4, 1023), (4, 1024), (8, 1499)]),
    (40, 64, 96, [(39, 63)]),
    (0, 8, 8, []),
]:
    memory, labels, columns = pattern_of(rows, words, stride)
    clean = int(triton_verify.wrong_words(memory, labels, columns).counts.sum())
    for row, word in spoilt:
        memory[row, word] ^= 1 << (row % 63)
    found = triton_verify.wrong_words(memory, labels, columns)
    wrong = [[row, int(found.counts[row])] for row in found.counts.nonzero().flatten().tolist()]
    shapes.append({
        "clean": clean,
        "wrong": wrong,
        "total": int(found.total),
        "rows": triton_verify.bad_rows(memory, labels, columns).tolist(),
        "compared": compare.by_torch(memory.contiguous(), labels, columns).tolist(),
        "is_available": triton_verify.is_available(),
    })

stride, rows, words = 2**30 + 8, 4, 16  # the last row lies 24 GiB behind the first, in a file of holes
whole = torch.from_file(sys.argv[1], shared=True, size=3 * stride + words, dtype=torch.int64)
memory = whole.as_strided((rows, words), (stride, 1))
labels, columns = numpy.arange(rows, dtype=numpy.uint64), pattern.word_keys(words)
memory.copy_(torch.from_numpy((pattern.row_keys(labels)[:, None] ^ columns).view(numpy.int64)))
memory[3, 5] ^= 1
found = triton_verify.wrong_words(memory, labels, columns)
print(json.dumps({"shapes": shapes, "far": found.counts.tolist()}))
"""

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the kernel found in Triton's interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", INTERPRETED, str(tmp_path_factory.mktemp("triton") / "sparse")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_triton
def test_the_kernel_counts_every_wrong_word_and_no_other(interpreted: Any) -> None:
    shapes = interpreted["shapes"]
    assert [shape["clean"] for shape in shapes] == [0] * 6
    assert [shape["wrong"] for shape in shapes] == [
        [[2, 1]],
        [[0, 2], [36, 1]],
        [[255, 1], [256, 1], [599, 1]],
        [[4, 2], [8, 1]],
        [[39, 1]],
        [],
    ]
    assert [shape["total"] for shape in shapes] == [1, 3, 3, 3, 1, 0]
    assert [shape["rows"] for shape in shapes] == [shape["compared"] for shape in shapes]
    assert [shape["rows"] for shape in shapes] == [[row for row, _ in shape["wrong"]] for shape in shapes]
    assert all(shape["is_available"] for shape in shapes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
def test_in_main_memory_the_kernel_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert not triton_verify.is_available()


def test_memory_of_another_shape_is_refused_before_anything_runs() -> None:
    keys = np.zeros(3, np.uint64)
    with pytest.raises(ValueError, match="must be int64"):
        triton_verify.wrong_words(torch.zeros(3, 3), keys, keys)
    with pytest.raises(ValueError, match="there are 3 labels and 2 columns"):
        triton_verify.wrong_words(torch.zeros((3, 3), dtype=torch.int64), keys, keys[:2])


def test_the_grid_of_a_pool_of_1_tb_is_one_that_cuda_can_launch() -> None:
    # Rows of 2 KiB in tiles of 4 rows and 256 words, 16 tiles for each program.
    along_rows, along_words = triton_verify.grid_of(2**40 // 2048, 256, 4, 256)
    assert (along_rows, along_words) == (2**40 // 2048 // 64, 1)
    assert along_rows < 2**31
    assert along_words < 2**16


COMPILED = """
import json
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kvproof.check.data_plane.compare.triton_kernel import count_wrong_words

memory = dict.fromkeys(["memory", "labels", "columns"], "*i64") | dict.fromkeys(["total", "counts"], "*i32")
sizes = {"num_rows": "i32", "num_words": "i32", "row_stride": "i32"}
tiles = {"ROW_TILES": 8, "ROWS": 8, "WORDS": 256}
compiled = []
for ones in [], ["num_rows"], ["num_words", "row_stride"]:  # Triton compiles separately for a size that is 1
    known = tiles | dict.fromkeys(ones, 1)
    source = ASTSource(count_wrong_words, memory | sizes | dict.fromkeys(known, "constexpr"), known)
    made = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32))
    wide = [line for line in made.asm["ttir"].splitlines() if "muli" in line and "xi64>" in line]
    compiled.append([len(made.asm["cubin"]) > 0, len(wide)])
print(json.dumps(compiled))
"""


@needs_triton
@pytest.mark.parametrize(
    "capability",
    [
        pytest.param(80, marks=pytest.mark.long, id="Ampere"),
        pytest.param(90, id="Hopper"),
        pytest.param(100, marks=pytest.mark.long, id="Blackwell"),
    ],
)
def test_the_kernel_compiles_for_a_gpu_and_counts_places_in_64_bits(tmp_path: Path, capability: int) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", COMPILED, str(capability)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout)
    assert [is_made for is_made, _ in compiled] == [True] * 3
    # For both reads of a tile: three products of the key of a row, and the place of a row unless the stride is 1.
    assert [num_wide for _, num_wide in compiled] == [8, 8, 6]


@needs_triton
def test_words_more_than_2_to_the_31_behind_the_first_are_found_where_they_are(interpreted: Any) -> None:
    assert interpreted["far"] == [0, 0, 0, 1]


def test_a_kernel_that_fails_or_is_wrong_when_it_is_tried_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(bad_rows: Callable[..., object]) -> str:
        monkeypatch.setattr(triton_verify, "is_available", lambda: True)
        monkeypatch.setattr(triton_verify, "bad_rows", bad_rows)
        triton_verify.refusal.cache_clear()
        return triton_verify.refusal(torch.device("cpu"))

    def cannot_compile(*given: object) -> object:
        raise RuntimeError("Failed to find C compiler.\nSet CC.")

    failed = "the Triton kernel failed in a trial: RuntimeError: Failed to find C compiler."
    assert tried(cannot_compile) == failed
    wrong = "the Triton kernel reported rows [0] in a trial in which only row 3 was wrong"
    assert tried(lambda *given: np.array([0])) == wrong
    assert tried(compare.by_torch) == ""
    triton_verify.refusal.cache_clear()
