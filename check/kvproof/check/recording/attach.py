"""Attach the right recorder to a manager."""

from pathlib import Path
from typing import Any

from kvproof.check.recording.recorder import Recorder
from kvproof.check.recording.vllm_v0.recorder import V0Recorder
from kvproof.check.recording.vllm_v1.recorder import V1Recorder


def record(manager: Any, path: str | Path, *, digest_key: bytes | None = None, shows_pool: bool = False) -> Recorder:
    """Record every call of this manager to a file, from now until `close` or the end of the process.

    manager: vLLM V1's `KVCacheManager`, or a manager with vLLM's V0 interface, before its first request. digest_key:
    store tokens as digests with this key (at most 64 bytes) instead of ids. shows_pool: also store the refcount of
    every block and the free list with each call, which costs time in proportion to the pool. An existing file is
    replaced; only its owner may read it. Raises RecordingRefused if the manager is of another kind or the file cannot
    be written.
    """
    kind = V1Recorder if hasattr(manager, "allocate_slots") else V0Recorder
    return kind(manager, Path(path), digest_key, shows_pool)
