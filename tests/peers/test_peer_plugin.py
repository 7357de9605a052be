"""The names of vLLM's block manager, answered by kvproof's. `make peers` runs vLLM's own code on them."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers import peer_plugin

from kvproof import impl
from kvproof.check.subjects.loading import EngineError


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package laid out as vLLM is, whose modules fail when they are really imported."""
    for name in ("", "core", "core/block"):
        (tmp_path / "fake_engine" / name).mkdir()
        (tmp_path / "fake_engine" / name / "__init__.py").write_text("")
    (tmp_path / "fake_engine" / "utils.py").write_text("Device = None\n")
    for module in peer_plugin.NAMES:
        (tmp_path / "fake_engine" / f"{module.replace('.', '/')}.py").write_text("raise ImportError('the original')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "fake_engine"
    for name in [name for name in sys.modules if name.partition(".")[0] == "fake_engine"]:
        del sys.modules[name]


def test_every_module_of_the_manager_is_answered_and_none_is_imported(engine: str) -> None:
    peer_plugin.install(engine)
    modules = {name: importlib.import_module(f"{engine}.{name}") for name in peer_plugin.NAMES}
    assert modules["core.block_manager"].SelfAttnBlockSpaceManager is impl.SelfAttnBlockSpaceManager
    assert modules["core.block.interfaces"].Block is impl.NaiveBlock
    assert importlib.import_module(f"{engine}.utils").Device is modules["core.interfaces"].Device is impl.Device


def test_a_scheduler_gets_the_manager_by_its_version(engine: str) -> None:
    peer_plugin.install(engine)
    interface = importlib.import_module(f"{engine}.core.interfaces").BlockSpaceManager
    assert interface.get_block_space_manager_class("selfattn") is impl.SelfAttnBlockSpaceManager
    with pytest.raises(EngineError, match="'placeholder'"):
        interface.get_block_space_manager_class("placeholder")


def test_an_evictor_is_made_for_its_policy(engine: str) -> None:
    peer_plugin.install(engine)
    evictor = importlib.import_module(f"{engine}.core.evictor")
    assert isinstance(evictor.make_evictor(evictor.EvictionPolicy.LRU), impl.LRUEvictor)
    with pytest.raises(EngineError, match="LRU"):
        evictor.make_evictor("another")


def test_it_is_too_late_once_a_module_was_imported(engine: str) -> None:
    peer_plugin.install(engine)
    with pytest.raises(EngineError, match=r"fake_engine\.core\.\S+ has been imported already"):
        peer_plugin.install(engine)
