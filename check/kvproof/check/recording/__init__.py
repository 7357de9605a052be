"""Recordings: the calls and answers of a live block manager, one JSON line per call, and their validation.

`record` is called on a manager in the user's own process; from then on each call writes a line, or hands it over to a
process beside the server that writes it. Nothing is judged there, and the server waits for nothing else. Later
`kvproof validate` reads the lines as a stream, replays them to the judge as if the manager were present, and decides
whether the specification explains every line.

    from kvproof.check.recording import record
    record(scheduler.block_manager, "trace.jsonl")      # vLLM's V0 interface
    record(scheduler.kv_cache_manager, "trace.jsonl")   # vLLM V1
    record(spec.get_manager(), "trace.jsonl")           # vLLM's offloading to host memory
    record(storage._l1_manager, "trace.jsonl")          # LMCache's L1 manager
    record(processor.cache, "trace.jsonl")              # transformers' continuous batching
    record(scheduler.tree_cache, "trace.jsonl")         # SGLang

Reading order: `format` defines a line; `recorder` makes lines; `handover` brings them to their file, by way of a `ring`
and a `scribe`, which completes the raw lines of `handover`; `reader` reads them; `replayed_subject` gives them to the
judge; `trace_judge` explains them; `validate` returns the verdict. `vllm_v0`, `vllm_v1` and `transformers` have a
recorder and a judge for each interface: what is read from the engine, and what each call means; the latter two share
`SequenceRecorder` and `sequence_lines`. `vllm_offload`, `lmcache` and `sglang` have them for stores, whose lines are
judged by the judge of stores: `store_lines`. `watch` judges while the program runs: `segments` is a recording that is
read while it grows, `watched_recording` judges it, `watcher` is the judge process, `watching` starts it, and `metrics`
has what Prometheus is given.
"""

from pathlib import Path
from typing import Any

from kvproof.check.recording.lmcache.recorder import L1Recorder
from kvproof.check.recording.recorder import Recorder
from kvproof.check.recording.recording_file import RecordingRefused
from kvproof.check.recording.sglang.recorder import RadixRecorder
from kvproof.check.recording.transformers.recorder import CacheRecorder
from kvproof.check.recording.vllm_offload.recorder import OffloadRecorder
from kvproof.check.recording.vllm_v0.recorder import V0Recorder
from kvproof.check.recording.vllm_v1.recorder import V1Recorder
from kvproof.check.recording.watching import LOG, RecordingWatch, watch_with

__all__ = ["Recorder", "RecordingRefused", "Watch", "record", "watch"]


def record(manager: Any, path: str | Path, *, digest_key: bytes | None = None, shows_pool: bool = False) -> Recorder:
    """Record every call of this manager to a file, from now until `close` or the end of the process.

    manager: vLLM V1's `KVCacheManager`, its `CPUOffloadingManager`, LMCache's `L1Manager`, transformers'
    `PagedAttentionCache`, SGLang's prefix cache, or a manager with vLLM's V0 interface, before its first request.
    digest_key: store tokens as digests with this key (at most 64 bytes) instead of ids. shows_pool: also store the
    refcount of every block and the free list with each call, which costs time in proportion to the pool. An existing
    recording is replaced, any other file is not; only its owner may read it. Raises RecordingRefused if the manager is
    of another kind or the file cannot be written.
    """
    return recorder_of(manager)(manager, Path(path), digest_key, shows_pool)


def watch(
    manager: Any,
    out: str | Path = ".kvproof/watch",
    *,
    on_finding: str = LOG,
    metrics: tuple[str, int] | None = None,
    digest_key: bytes | None = None,
    shows_pool: bool = False,
) -> RecordingWatch:
    """Record every call of this manager, and judge the recording in a process beside this one, from now on.

    out: the folder for the last lines before a finding. on_finding: "log" prints the finding and goes on, "dump" also
    keeps the whole recording in `out`, "stop" sends SIGTERM to this process. metrics: host and port at which Prometheus
    finds the figures. digest_key and shows_pool are those of `record`. Raises RecordingRefused if the manager cannot be
    recorded or the judge cannot be started. The program never waits for the judge; `close` does.
    """
    return watch_with(recorder_of(manager), manager, Path(out), on_finding, metrics, digest_key, shows_pool)


ENGINES: dict[str, type[Recorder]] = {  # by the beginning of the names of their modules
    "vllm.core.": V0Recorder,
    "vllm.v1.core.": V1Recorder,
    "vllm.v1.kv_offload.": OffloadRecorder,
    "lmcache.": L1Recorder,
    "sglang.": RadixRecorder,
    "transformers.": CacheRecorder,
}
INTERFACES: dict[str, type[Recorder]] = {  # by a name that no other interface has
    "prepare_store": OffloadRecorder,
    "reserve_write": L1Recorder,
    "cache_allocators": CacheRecorder,
    "token_to_kv_pool_allocator": RadixRecorder,
    "allocate_slots": V1Recorder,
}


def recorder_of(manager: Any) -> type[Recorder]:
    """The kind of recorder for this manager: that of the engine whose class it is, or else of what it has."""
    for kind in type(manager).__mro__:
        for begin, recorder in ENGINES.items():
            if kind.__module__.startswith(begin):
                return recorder
    return next((recorder for name, recorder in INTERFACES.items() if hasattr(manager, name)), V0Recorder)
