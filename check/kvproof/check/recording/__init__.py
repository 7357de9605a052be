"""Recordings: the calls and answers of a live block manager, one JSON line per call, and their validation.

`record` is called on a manager in the user's own process; from then on each call writes a line. Nothing is judged
there, and the server only waits for the write. Later `kvproof validate` reads the lines as a stream, replays them to
the judge as if the manager were present, and decides whether the specification explains every line.

    from kvproof.check.recording import record
    record(scheduler.block_manager, "trace.jsonl")      # vLLM's V0 interface
    record(scheduler.kv_cache_manager, "trace.jsonl")   # vLLM V1

Reading order: `format` defines a line; `recorder` writes lines; `reader` reads them; `replayed_subject` gives them to
the judge; `trace_judge` explains them; `validate` returns the verdict. `vllm_v0` and `vllm_v1` have a recorder and a
judge for each interface: what is read from the engine, and what each call means.
"""

from kvproof.check.recording.attach import record
from kvproof.check.recording.recorder import Recorder, RecordingRefused

__all__ = ["Recorder", "RecordingRefused", "record"]
