"""Faults are planted in a copy, and only where their text is found exactly once."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.audit.faults.altering import altered

from kvproof.audit.faults import planting
from kvproof.audit.faults.catalogue import catalogue
from kvproof.audit.faults.edits import Edit, Fault, NotPlanted
from kvproof.audit.faults.planting import ROOT, planted, text_with
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.protocol.pool import PoolConfig
from kvproof.models.translation.text import specification

FREE = Fault(
    "kvproof-pool/nothing-is-freed",
    (Edit("DeviceBlocks.release", "free_ids.appendleft(block_id)", "pass", "impl/kvproof/impl/device_blocks.py"),),
    "kvproof-pool",
    "leak",
    "kvproof-pool",
    "Blocks that are released do not become free.",
)
SOURCE = """
def first(number):
    return number + 1

class Second:
    def third(self, number):
        return number + 1
"""
PLUS = altered(FREE, function="first", old="number + 1", new="number - 1")


def test_a_text_is_replaced_in_its_function_only() -> None:
    assert PLUS.plant[0].changed(SOURCE) == SOURCE.replace("number + 1", "number - 1", 1)
    assert altered(PLUS, function="Second.third").plant[0].changed(SOURCE).count("number - 1") == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (altered(PLUS, function="fourth"), "has no function fourth"),
        (altered(PLUS, old="number + 2"), "'number + 2' 0 times, not once"),
        (altered(PLUS, old="number"), "'number' 2 times, not once"),
        (altered(PLUS, new="(number + 1)"), "means the same"),
        (altered(PLUS, new="number +"), "is no Python"),
    ],
)
def test_a_fault_that_cannot_be_planted_is_refused(fault: Fault, reason: str) -> None:
    with pytest.raises(NotPlanted, match=re.escape(reason)):
        fault.plant[0].changed(SOURCE)


def test_a_process_imports_the_faulty_copy_and_the_original_is_unchanged() -> None:
    before = {path: path.read_text() for path in (ROOT / "impl").rglob("*.py")}
    with planted(FREE) as make:
        pool = make()
        pool.open(PoolConfig(num_gpu_blocks=3))
        pool.free(pool.allocate(1))
        assert pool.observe().free == (2, 0)
    assert {path: path.read_text() for path in (ROOT / "impl").rglob("*.py")} == before


def test_a_process_that_a_worker_starts_imports_the_faulty_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    package = sys.modules["kvproof"]
    monkeypatch.setattr(package, "__path__", list(package.__path__))  # as `hosts.begin` makes it
    with planted(FREE) as make:
        pool = make()
        pool.open(PoolConfig(num_gpu_blocks=3))
        pool.free(pool.allocate(1))
        assert pool.observe().free == (2, 0)
    assert all(folder.startswith(str(ROOT)) for folder in package.__path__)


def test_a_release_that_is_not_downloaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path))
    with (
        pytest.raises(NotPlanted, match=re.escape("kvproof engines add vllm==0.33.0")),
        planted(replace(FREE, subject="vllm-v1==0.33.0")),
    ):
        pass


def test_a_text_that_a_function_of_the_specification_does_not_have_is_refused() -> None:
    with pytest.raises(NotPlanted, match="evict has 'nothing of this' 0 times"):
        text_with(specification(), Edit("evict", "nothing of this", "else"))


@pytest.mark.engine
def test_the_copy_of_an_engine_is_a_checkout_that_is_driven_as_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = next(one for one in catalogue() if one.subject == "vllm-v1==0.33.0")
    made: list[str] = []

    def noted(name: str) -> RemoteFactory:
        made.append(name)
        return RemoteFactory(name)

    monkeypatch.setattr(planting, "RemoteFactory", noted)
    with planted(fault) as make:
        assert make().name.startswith("vllm-v1")
    (name,) = made
    assert name.startswith("vllm-v1==0.33.0@/")
    folder = Path(name.partition("@")[2])
    assert not folder.exists()
