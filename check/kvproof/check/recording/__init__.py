"""Recordings: what a live block manager was asked and answered, one JSON line a call, and whether it was right.

`record` is put around a manager in somebody's own process; from then on each call leaves a line. Nothing is judged
there, and the server waits for nothing but the write. `kvproof validate` reads the lines as a stream later, plays them
to the judge as if the manager stood there, and says whether the specification explains every one.

    from kvproof.check.recording import record
    record(scheduler.block_manager, "trace.jsonl")      # vLLM's V0 interface
    record(scheduler.kv_cache_manager, "trace.jsonl")   # vLLM V1

`format` says what a line holds, `recorder` writes them (`v0_recorder`, `v1_recorder`: what is read of which engine),
`reading` reads them, `judge` explains them (`v0_judge`, `v1_judge`: what each call means), `validation` gives verdicts.
"""

from kvproof.check.recording.attach import record
from kvproof.check.recording.recorder import Recorder, RecordingRefused

__all__ = ["Recorder", "RecordingRefused", "record"]
