"""Importing one module of a package whose `__init__` must not run, over a tree of a few lines."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import EngineError, partial_import

PACKAGE = "a_tiny_engine"
FILES = {
    "__init__.py": "raise SystemExit('its __init__ ran')",
    "core/__init__.py": "",
    "core/pool.py": f"from {PACKAGE}.heavy import Device\nDEVICE = Device",
    "core/greedy.py": "import a_package_that_nobody_has",
    "core/newer.py": f"from {PACKAGE}.heavy import Tensor",
}
STAND_INS = {"heavy": {"Device": "GPU"}}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    for name, text in FILES.items():
        path = tmp_path / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    yield tmp_path
    partial_import._mounted.pop(PACKAGE, None)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_a_module_is_imported_without_the_init_of_its_package(tree: Path) -> None:
    partial_import.mount(PACKAGE, tree, STAND_INS)
    assert partial_import.module_of(PACKAGE, "core.pool").DEVICE == "GPU"


def test_what_mount_returns_imports_a_module(tree: Path) -> None:
    assert partial_import.mount(PACKAGE, tree, STAND_INS)("core.pool").__name__ == f"{PACKAGE}.core.pool"
    assert partial_import.mount(PACKAGE, tree, STAND_INS)("core.pool").__name__ == f"{PACKAGE}.core.pool"


def test_a_release_without_the_module_is_refused(tree: Path) -> None:
    partial_import.mount(PACKAGE, tree, STAND_INS)
    with pytest.raises(EngineError, match=r"has no module a_tiny_engine\.core\.gone"):
        partial_import.module_of(PACKAGE, "core.gone")


def test_a_package_that_is_missing_is_named_and_not_replaced(tree: Path) -> None:
    partial_import.mount(PACKAGE, tree, STAND_INS)
    with pytest.raises(EngineError, match="needs a_package_that_nobody_has"):
        partial_import.module_of(PACKAGE, "core.greedy")


def test_a_name_that_no_stand_in_has_is_named(tree: Path) -> None:
    partial_import.mount(PACKAGE, tree, STAND_INS)
    with pytest.raises(EngineError, match="Tensor"):
        partial_import.module_of(PACKAGE, "core.newer")


def test_one_process_has_one_release(tree: Path, tmp_path: Path) -> None:
    partial_import.mount(PACKAGE, tree, STAND_INS)
    partial_import.mount(PACKAGE, tree, STAND_INS)
    with pytest.raises(EngineError, match="one process for each release"):
        partial_import.mount(PACKAGE, tmp_path / "another", STAND_INS)


def test_one_process_has_one_set_of_stand_ins(tree: Path) -> None:
    partial_import.mount(PACKAGE, tree, STAND_INS)
    with pytest.raises(EngineError, match="one process for each release and subject"):
        partial_import.mount(PACKAGE, tree, {})


def test_every_name_of_a_stub_module_has_the_same_value(tree: Path) -> None:
    partial_import.mount(PACKAGE, tree, STAND_INS, ("off", "off.more"), int)
    assert sys.modules[f"{PACKAGE}.off.more"].Anything is int
    with pytest.raises(EngineError, match="Tensor"):
        partial_import.module_of(PACKAGE, "core.newer")


def test_modules_that_a_release_has_are_distinguished_from_those_that_it_lacks(tree: Path) -> None:
    partial_import.mount(PACKAGE, tree, STAND_INS)
    assert [partial_import.has_module(PACKAGE, name) for name in ("core.pool", "core.gone", "gone.pool")] == [
        True,
        False,
        False,
    ]


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert (partial_import.installed_version(PACKAGE), bool(partial_import.installed_version("pytest"))) == ("", True)


def test_a_module_whose_parents_the_release_has_not_is_absent_too(tree: Path) -> None:
    partial_import.mount(PACKAGE, tree, STAND_INS)
    with pytest.raises(EngineError, match=r"has no module a_tiny_engine\.gone\.pool"):
        partial_import.module_of(PACKAGE, "gone.pool")
