"""Measure how much recording and watching cost a server, and the speed and memory of judging a recording.

The server is the built-in scheduler with its manager and no model. Its requests have some hundred tokens, many with a
common prefix, and the prefix cache is on. A real server computes between the calls, so compare the cost of a line with
a step of its model. Recordings of several lengths are judged, each in a separate process: the time should grow with the
length, and the memory should not. `recorded_calls` measures the managers of engines. Times are processor times; those
of judging include about a second for compiling the specification.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

from benchmarks import recorded_calls
from kvproof.check.recording import record, watch
from kvproof.check.recording.recorder import Recorder
from kvproof.impl import BlockManager, Sequence, SequenceGroup, SequenceStatus
from kvproof.impl.scheduler import Scheduler, SchedulerConfig

BLOCK_SIZE, NUM_BLOCKS, NUM_REQUESTS = 16, 2_000, 48
LENGTHS = (10_000, 100_000)  # lines
NUM_STEPS = 100  # of the measured server
ROUNDS = 3
JUDGE = r"""
import re, sys, time
from pathlib import Path
from kvproof.check.recording.validate import validate
began = time.process_time()
done = validate(Path(sys.argv[1]))
assert done.finding is None and not done.reason, (done.finding, done.reason)
peak_kb = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]
print(done.num_calls, time.process_time() - began, peak_kb)
"""


class Server:
    """A server with a constant number of requests: a new one arrives when another ends."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.manager = BlockManager(
            block_size=BLOCK_SIZE, num_gpu_blocks=NUM_BLOCKS, num_cpu_blocks=0, enable_caching=True
        )
        self.scheduler = Scheduler(SchedulerConfig(2_048, 64, 1_024, chunked_prefill_enabled=True), self.manager)
        self.groups: list[SequenceGroup] = []
        self.common = [[self.random.randrange(50_000) for _ in range(256)] for _ in range(8)]
        self.num_requests = 0

    def step(self) -> None:
        """Schedule one step, and process its results as an engine does."""
        random = self.random
        while len(self.groups) < NUM_REQUESTS:
            self.num_requests += 1
            own = [random.randrange(50_000) for _ in range(random.randint(16, 256))]
            seq = Sequence(self.num_requests, [*random.choice(self.common), *own], BLOCK_SIZE)
            self.groups.append(SequenceGroup(str(self.num_requests), [seq]))
            self.scheduler.add_seq_group(self.groups[-1])
        for scheduled in self.scheduler.schedule().scheduled_seq_groups:
            (seq,) = scheduled.seq_group.seqs
            seq.data.update_num_computed_tokens(scheduled.token_chunk_size)
            if not seq.data.get_num_uncomputed_tokens():
                seq.append_token_id(random.randrange(50_000))
                if random.random() < 0.02:
                    seq.status = SequenceStatus.FINISHED_STOPPED
        self.scheduler.free_finished_seq_groups()
        self.groups = [group for group in self.groups if not group.is_finished()]


def seconds_of_run(recorder_at: Path | None) -> tuple[float, Recorder | None]:
    """Processor seconds of a run of the server, and its recorder. recorder_at: the recording; None for no recording."""
    server = Server(1)
    recorder = record(server.manager, recorder_at) if recorder_at else None
    began = time.process_time()
    for _ in range(NUM_STEPS):
        server.step()
    seconds = time.process_time() - began
    if recorder:
        recorder.close()
    return seconds, recorder


def watched_seconds(folder: Path) -> float:
    """Processor seconds of a run of the server that another process judges meanwhile, without those of the judge."""
    server = Server(1)
    with watch(server.manager, folder) as watching:
        began = time.process_time()
        for _ in range(NUM_STEPS):
            server.step()
        seconds = time.process_time() - began
    assert watching.judge.last.num_lines == watching.recorder.num_lines, watching.findings
    return seconds


def cost(folder: Path) -> dict[str, float]:
    """The cost of a line in microseconds and bytes: medians of what runs that follow each other differ by."""
    path, num_lines = folder / "cost.jsonl", 0
    recorded, watched = list[float](), list[float]()
    for _ in range(ROUNDS):
        bare = seconds_of_run(None)[0]
        seconds, recorder = seconds_of_run(path)
        assert recorder is not None
        num_lines = recorder.num_lines
        recorded.append(seconds - bare)
        watched.append(watched_seconds(folder) - bare)
    return {
        "us/line": 1e6 * median(recorded) / num_lines,
        "us/step": 1e6 * median(recorded) / NUM_STEPS,
        "us/line watched": 1e6 * median(watched) / num_lines,
        "bytes/line": path.stat().st_size / num_lines,
    }


def judged(folder: Path, num_lines: int) -> dict[str, float]:
    """The speed in lines per second and the peak memory in MB of judging a recording of at least `num_lines` lines."""
    path = folder / f"{num_lines}.jsonl"
    server = Server(2)
    with record(server.manager, path) as recorder:
        while recorder.num_lines < num_lines:
            server.step()
    done = subprocess.run([sys.executable, "-c", JUDGE, str(path)], capture_output=True, text=True, check=True)
    lines, seconds, memory_kb = (float(word) for word in done.stdout.split())
    path.unlink()
    return {"lines": lines, "lines/s": lines / seconds, "MB": memory_kb / 1024}


def main() -> dict[str, object]:
    """Print the cost of recording and of judging. Returns the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        of_a_line = cost(folder)
        print(f"recording, {NUM_REQUESTS} requests, {NUM_BLOCKS:,} blocks of {BLOCK_SIZE} tokens, prefix cache")
        print(f"  {of_a_line['us/line']:>10.1f} us/line     {of_a_line['bytes/line']:.0f} bytes per line")
        print(f"  {of_a_line['us/step']:>10.0f} us/step     of the scheduler")
        print(f"  {of_a_line['us/line watched']:>10.1f} us/line     while another process judges")
        figures: dict[str, object] = {"recording": of_a_line}
        print("added by recording to a call of an engine, in processor us of its thread (and of its process), by size")
        figures["engines"] = recorded_calls.main(folder)
        print("judging recordings of the server above")
        for num_lines in LENGTHS:
            one = judged(folder, num_lines)
            figures[f"{num_lines} lines"] = one
            print(
                f"  {one['lines/s']:>10,.0f} lines/s     {one['lines']:,.0f} lines judged, at most {one['MB']:.0f} MB"
            )
    return figures
