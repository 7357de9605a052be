"""The replay of a counterexample as frames: one after each step, drawn by the level (`Level.frame`)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvproof.check.counterexample.steps import steps_of
from kvproof.check.counterexample.trace_schema import CounterexampleError, config_of, operations_of
from kvproof.check.oracle.level import level_of_config
from kvproof.check.oracle.replay import replay
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Unsupported
from kvproof.reports.frames import Frame, ReplayFrames
from kvproof.spec.trace import Trace


def replay_frames(
    make: Callable[[], ManagerSubject], trace: Trace, path: Path, finding: Finding | None = None
) -> ReplayFrames:
    """Replay the trace on a fresh subject. finding: what is expected; a hang is not waited for as long again."""
    try:
        config, operations = config_of(trace, path), operations_of(trace, path)
        recorder = FrameRecorder(config)
        done = replay(make, config, operations, finding, recorder.take)
    except (CounterexampleError, Unsupported, AdapterError, AssertionError) as error:
        return ReplayFrames(problem=str(error))
    if not recorder.frames:
        return ReplayFrames(problem=done.finding.text if done.finding else "the subject did not open")
    outcome = "nothing is refuted."
    if done.finding is not None:
        recorder.mark(done.finding)
        outcome = f"{done.finding.property} is refuted at step {len(done.steps)}: {done.finding.text}"
    steps = ["open", *steps_of(done, config, operations[: len(done.steps)])]
    frames = [replace(frame, step=step) for frame, step in zip(recorder.frames, steps, strict=True)]
    return ReplayFrames(
        frames, outcome, done.finding is not None, "", config.num_gpu_blocks, config.num_host_blocks, config.block_size
    )


class FrameRecorder:
    """Takes a frame after each step."""

    def __init__(self, config: Config) -> None:
        self.draw = level_of_config(config).frame
        self.frames: list[Frame] = []
        self._judge: Any = None

    def take(self, judge: Any) -> None:
        """One frame of the judge as it is now."""
        self._judge = judge
        self.frames.append(self.draw(judge, None))

    def mark(self, finding: Finding) -> None:
        """In the last frame, compare with what the subject showed when the finding was made."""
        if self._judge is not None:
            self.frames[-1] = self.draw(self._judge, finding)
