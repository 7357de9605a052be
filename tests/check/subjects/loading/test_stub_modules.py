"""A package of which only the modules that are named are real."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.loading.stub_modules import mount_real

PACKAGE = "stubbed"


class Never:
    """What everything else is."""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A package whose own `__init__` files must not run; gone again after the test."""
    inner = tmp_path / PACKAGE / "core" / "inner"
    inner.mkdir(parents=True)
    for folder in (tmp_path / PACKAGE, inner.parent, inner):
        (folder / "__init__.py").write_text("raise RuntimeError('this must not run')")
    (inner / "real.py").write_text(
        f"from {PACKAGE}.kernels.fast import Kernel, SIZE\nfrom {PACKAGE}.core import beside\n"
    )
    (inner.parent / "beside.py").write_text("raise RuntimeError('this must not run')")
    finders = sys.meta_path[:]
    yield tmp_path / PACKAGE
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_only_the_listed_modules_are_loaded_and_all_others_are_stubs(root: Path) -> None:
    mount_real(PACKAGE, root, ["core.inner.real"], {"kernels.fast": {"SIZE": 4}}, Never)
    real = importlib.import_module(f"{PACKAGE}.core.inner.real")
    assert real.SIZE == 4
    assert real.Kernel is Never
    assert real.beside.anything is Never


def test_the_same_package_from_another_folder_is_refused(root: Path, tmp_path: Path) -> None:
    mount_real(PACKAGE, root, ["core.inner.real"], {}, Never)
    mount_real(PACKAGE, root, ["core.inner.real"], {}, Never)
    importlib.import_module(f"{PACKAGE}.core.inner.real")
    with pytest.raises(EngineError, match="one process for each release"):
        mount_real(PACKAGE, tmp_path, ["core.inner.real"], {}, Never)
