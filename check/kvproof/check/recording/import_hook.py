"""Record the block managers of an unmodified program, from their creation.

`kvproof record -- COMMAND` puts a `sitecustomize` on the import path of every Python process that the command starts,
engine processes included. It waits until the program imports a module that defines a block manager, and then records
each manager after its `__init__`. It imports no engine module itself.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

FILE, SHOWS_POOL, DIGEST_KEY = "KVPROOF_RECORD", "KVPROOF_RECORD_SHOWS_POOL", "KVPROOF_RECORD_DIGEST_KEY"
IS_WATCHED = "KVPROOF_RECORD_WATCHED"  # a judge reads the recordings while they grow
MANAGERS = {
    "vllm.core.block_manager": "SelfAttnBlockSpaceManager",
    "vllm.v1.core.kv_cache_manager": "KVCacheManager",
    "vllm.v1.kv_offload.cpu.manager": "CPUOffloadingManager",
    "vllm.v1.kv_offload.lru_manager": "LRUOffloadingManager",
    "vllm.v1.kv_offload.arc_manager": "ARCOffloadingManager",
    "lmcache.v1.distributed.l1_manager": "L1Manager",
    "sglang.srt.mem_cache.unified_radix_cache": "UnifiedRadixCache",
    "sglang.srt.mem_cache.radix_cache": "RadixCache",
    "sglang.srt.mem_cache.chunk_cache": "ChunkCache",
    "transformers.generation.continuous_batching.cache": "PagedAttentionCache",
    "kvproof.impl.block_manager": "SelfAttnBlockSpaceManager",
}
PLACE = Path(__file__).with_name("on_start")  # of this install; the recorded Python may have another one


class _Finder(MetaPathFinder):
    """Finds modules with the other finders, and patches the manager class of a module after it was executed."""

    def __init__(self) -> None:
        self.is_looking = False

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The specification of a module that defines a manager; None for every other module."""
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
            with _noting_what_is_not_recorded(f"{module.__name__}.{class_name} takes no recorder"):
                kind.__init__ = _recording(kind.__init__)

    with _noting_what_is_not_recorded(f"{class_name}: {type(loader).__name__} takes no recorder"):
        loader.exec_module = exec_module  # type: ignore[method-assign]


def _recording(make: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(make)
    def made(self: Any, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        _record(self)

    return made


@contextmanager
def _noting_what_is_not_recorded(what: str) -> Iterator[None]:
    """If the block fails, say so, and leave an empty file where the recording would be. The program continues."""
    try:
        yield
    except Exception as error:
        print(f"kvproof: not recorded: {what}: {type(error).__name__}: {error}", file=sys.stderr)
        with suppress(OSError):
            _place()


def _place() -> Path:
    """The empty file of the next recording. Raises OSError."""
    from kvproof.check.recording.segments import claimed

    return claimed(Path(os.environ[FILE]))


def _record(manager: Any) -> None:
    """Record a manager. An error is printed, and the program continues; the file of the recording stays empty."""
    from kvproof.check.recording import recorder_of
    from kvproof.check.recording.recording_file import RecordingRefused
    from kvproof.check.recording.segments import SegmentWriter

    key = os.environ.get(DIGEST_KEY)
    try:
        path = _place()
        segments = SegmentWriter(path) if IS_WATCHED in os.environ else None
        recorder_of(manager)(manager, path, key.encode() if key else None, SHOWS_POOL in os.environ, segments)
    except (RecordingRefused, OSError) as error:
        print(f"kvproof: not recorded: {error}", file=sys.stderr)
    except Exception as error:
        print(f"kvproof: not recorded, by a fault of kvproof: {type(error).__name__}: {error}", file=sys.stderr)


def numbered(path: Path) -> list[Path]:
    """The files that have the names of the second and later managers of a recording to this path, in order."""
    found = {}
    for file in path.parent.iterdir():
        stem, separator, number = file.name.removesuffix(path.suffix).rpartition("-")
        if separator and stem == path.stem and file.suffix == path.suffix and number.isdecimal():
            found[int(number)] = path.with_name(file.name)
    return [found[number] for number in sorted(found)]


def is_recorded() -> bool:
    """Whether the managers of this process are recorded by the environment that `environment` made."""
    return FILE in os.environ


def install() -> None:
    """Record the managers of modules that are imported from now on, if the environment names a file.

    A second call changes nothing, so that no manager is recorded twice.
    """
    if is_recorded() and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def run_shadowed(own: str) -> None:
    """Run the `sitecustomize` that Python would have found without this one.

    own: the file of the one that runs now. It belongs to the kvproof that records, which may be another install than
    the one that this module is of.
    """
    folders = {Path(own).resolve().parent, PLACE.resolve()}
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() not in folders]
    found = PathFinder.find_spec("sitecustomize", elsewhere)
    if found is not None and found.loader is not None:
        module = ModuleType("sitecustomize")
        module.__spec__, module.__file__ = found, found.origin
        found.loader.exec_module(module)


def environment(path: Path, shows_pool: bool, digest_key: str | None, is_watched: bool = False) -> dict[str, str]:
    """The environment in which the managers of a command are recorded to a file. is_watched: a judge reads it."""
    before = os.environ.get("PYTHONPATH")
    given = {
        **os.environ,
        FILE: str(path.resolve()),
        "PYTHONPATH": os.pathsep.join([str(PLACE), *([before] if before else [])]),
    }
    if shows_pool:
        given[SHOWS_POOL] = "1"
    if is_watched:
        given[IS_WATCHED] = "1"
    if digest_key:
        given[DIGEST_KEY] = digest_key
    return given
