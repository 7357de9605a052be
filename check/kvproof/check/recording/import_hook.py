"""Recording a program that was not written for it: managers are recorded as soon as the program makes one.

`kvproof record -- COMMAND` puts a `sitecustomize` on the path of every Python that the command starts, engine processes
included. It waits for the modules that define block managers to be imported, and then records each manager from when
its `__init__` is done. Nothing is imported that the program does not import itself.
"""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

FILE, SHOWS_POOL, DIGEST_KEY = "KVPROOF_RECORD", "KVPROOF_RECORD_SHOWS_POOL", "KVPROOF_RECORD_DIGEST_KEY"
MANAGERS = {
    "vllm.core.block_manager": "SelfAttnBlockSpaceManager",
    "vllm.v1.core.kv_cache_manager": "KVCacheManager",
    "kvproof.impl.block_manager": "SelfAttnBlockSpaceManager",
}
PLACE = Path(__file__).with_name("on_start")


class _Finder(MetaPathFinder):
    """Finds what others find, and sees to it that the manager of a module is recorded."""

    def __init__(self) -> None:
        self.is_looking = False

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The specification of a module that defines a manager; None for every other."""
        if name not in MANAGERS or self.is_looking:
            return None
        self.is_looking = True
        try:
            for finder in sys.meta_path:
                found = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
                if found is not None and found.loader is not None:
                    _follow(found.loader, MANAGERS[name])
                    return found
        finally:
            self.is_looking = False
        return None


def _follow(loader: Loader, class_name: str) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        kind = getattr(module, class_name, None)
        if kind is not None:
            kind.__init__ = _recording(kind.__init__)

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _recording(make: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(make)
    def made(self: Any, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        _record(self)

    return made


def _record(manager: Any) -> None:
    """Record a manager; what goes wrong is said, and the program goes on."""
    from kvproof.check.recording.attach import record
    from kvproof.check.recording.recorder import RecordingRefused

    key = os.environ.get(DIGEST_KEY)
    try:
        path = _claimed(Path(os.environ[FILE]))
        record(manager, path, digest_key=key.encode() if key else None, shows_pool=SHOWS_POOL in os.environ)
    except (RecordingRefused, OSError) as error:
        print(f"kvproof: not recorded: {error}", file=sys.stderr)


def _claimed(path: Path) -> Path:
    """A file of its own for each manager: the one that was named, then numbered ones beside it."""
    number, name = 1, path
    while True:
        try:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            return name
        except FileExistsError:
            number += 1
            name = path.with_name(f"{path.stem}-{number}{path.suffix}")


def install() -> None:
    """From now on managers of modules that are imported are recorded, if the environment names a file."""
    if FILE in os.environ:
        sys.meta_path.insert(0, _Finder())


def run_shadowed() -> None:
    """Run the `sitecustomize` that would have been found without ours."""
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != PLACE.resolve()]
    found = PathFinder.find_spec("sitecustomize", elsewhere)
    if found is not None and found.loader is not None:
        module = ModuleType("sitecustomize")
        module.__spec__, module.__file__ = found, found.origin
        found.loader.exec_module(module)


def environment(path: Path, shows_pool: bool, digest_key: str | None) -> dict[str, str]:
    """What a command must find in its environment to be recorded to a file."""
    before = os.environ.get("PYTHONPATH")
    given = {
        **os.environ,
        FILE: str(path.resolve()),
        "PYTHONPATH": os.pathsep.join([str(PLACE), *([before] if before else [])]),
    }
    if shows_pool:
        given[SHOWS_POOL] = "1"
    if digest_key:
        given[DIGEST_KEY] = digest_key
    return given
