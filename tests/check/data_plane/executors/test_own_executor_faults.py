"""Executors of one's own that go astray, each in its own way: every one is a finding that says what came of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kvproof.check.data_plane.executors import named
from kvproof.check.data_plane.executors.isolation import Isolation
from kvproof.check.data_plane.mappings import scenario
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.run.harness import run_case
from kvproof.check.data_plane.run.results import DataFinding, FindingKind, WrongClass

CPU = torch.device("cpu")
# One process serves all cases, so one function does everything: the number of layers selects what it does.
WAYS = (
    "keeps to it",
    "beyond the end",
    "rewrites the mapping",
    "empties the lists",
    "rounds numbers",
    "next layer",
    "returns early",
    "writes later",
    "asks to leave",
)
SOURCE = f"""
import sys
import threading
import time

WAYS = {WAYS!r}
step = 0

def move(caches, moves):
    global step
    what = WAYS[caches.geometry.num_layers - 1]
    step += 1
    if what == "rewrites the mapping":
        for name, _, _, pairs in list(moves.lists()):
            object.__setattr__(moves, name, pairs[:-1])
    if what == "returns early":
        threading.Thread(target=execute, args=(caches, moves, what, 0.3)).start()
        return
    execute(caches, moves, what)
    if what == "beyond the end":
        plane = caches.gpu_planes[-1]
        num_blocks, num_words = plane.shape
        plane.as_strided((1, num_words), (num_words, 1), plane.storage_offset() + num_blocks * plane.stride(0)).fill_(7)
    if what == "empties the lists":
        caches.gpu.clear()
    if what == "writes later":
        threading.Thread(target=write_later, args=(caches.cpu[-1], step)).start()
    if what == "asks to leave":
        sys.exit("enough")

def execute(caches, moves, what, delay=0.0):
    time.sleep(delay)
    for name, source_pool, target_pool, pairs in moves.lists():
        sources, targets = ((caches.gpu, caches.cpu)[pool] for pool in (source_pool, target_pool))
        if what == "next layer" and name == "copy":
            sources = sources[1:] + sources[:1]
        for here, there in zip(sources, targets):
            for source, target in pairs:
                block = here[source]
                there[target] = block.float().to(block.dtype) if what == "rounds numbers" else block

def write_later(tensor, mine):
    time.sleep(0.5)
    if mine == step:  # nothing was asked of it since
        tensor[2].zero_()
"""


@pytest.fixture(scope="module")
def name(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("own") / "astray.py"
    path.write_text(SOURCE, encoding="utf-8")
    return f"{path}:move"


@pytest.fixture(scope="module")
def isolation(name: str) -> Iterator[Isolation]:
    with Isolation(name, 20.0) as process:
        yield process


def finding(name: str, isolation: Isolation, way: str) -> DataFinding | None:
    geometry = Geometry(Layout.NHD, "bfloat16", 4, 2, 16, WAYS.index(way) + 1, 12, 9)
    return run_case(named(name), geometry, scenario("mixed", 0, 12, 9, 4), CPU, isolation=isolation).finding


def test_who_keeps_to_it_is_right(name: str, isolation: Isolation) -> None:
    assert finding(name, isolation, "keeps to it") is None


def test_who_writes_beyond_the_end_is_found_in_the_guard_behind_the_last_block(name: str, isolation: Isolation) -> None:
    found = finding(name, isolation, "beyond the end")
    assert found is not None
    assert found.wrong[0].text.startswith("the guard one row after block 11 of the GPU pool, layer 1 holds ")


def test_who_rewrites_its_mapping_is_held_to_the_one_that_was_given(name: str, isolation: Isolation) -> None:
    found = finding(name, isolation, "rewrites the mapping")
    assert found is not None
    assert found.wrong[0].wrong_class is WrongClass.UNMOVED


def test_who_empties_the_lists_of_tensors_moves_nothing_any_more(name: str, isolation: Isolation) -> None:
    found = finding(name, isolation, "empties the lists")
    assert found is not None
    assert (found.step, list(found.histogram)) == (2, ["unmoved"])


def test_an_executor_that_copies_numbers_alters_bytes_that_are_no_number(name: str, isolation: Isolation) -> None:
    found = finding(name, isolation, "rounds numbers")
    assert found is not None
    assert list(found.histogram) == ["altered"]
    assert "some right bits, and other bits that were never written" in found.text


def test_who_takes_the_next_layer_gets_the_layer_it_took(name: str, isolation: Isolation) -> None:
    found = finding(name, isolation, "next layer")
    assert found is not None
    first = found.wrong[0]
    assert first.origin is not None
    num_layers = WAYS.index("next layer") + 1
    assert (first.origin.layer, first.origin.part) == ((first.layer + 1) % num_layers, first.part)


def test_who_returns_before_the_bytes_are_moved_is_late(name: str, isolation: Isolation) -> None:
    found = finding(name, isolation, "returns early")
    assert found is not None
    assert found.kind is FindingKind.LATE
    assert found.text.endswith(
        "; it became right after its process had finished: the executor did not wait for its work"
    )


def test_who_keeps_a_tensor_and_writes_after_the_last_step_is_late(name: str, isolation: Isolation) -> None:
    found = finding(name, isolation, "writes later")
    assert found is not None
    assert found.kind is FindingKind.LATE
    assert "holds zeros" in found.text
    assert found.text.endswith("; it was right before its process had finished: the executor wrote later")


def test_who_asks_to_leave_has_crashed(name: str, isolation: Isolation) -> None:
    found = finding(name, isolation, "asks to leave")
    assert found is not None
    assert found.text == "in step 1, the executor crashed: its process ended with exit code 1 after: enough"
