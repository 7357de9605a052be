"""A small server whose manager is recorded, and recordings of released engines."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvproof.check.recording import record
from kvproof.check.subjects.loading import download
from kvproof.impl import BlockManager, Sequence, SequenceGroup, SequenceStatus
from kvproof.impl.scheduler import PreemptionMode, Scheduler, SchedulerConfig

Serve = Callable[..., Path]
NUM_TOKENS_MAX = 24  # of a prompt; of what is generated a third


class Server:
    """An engine without a model: requests arrive, are scheduled, sample tokens, fork, end and are aborted."""

    def __init__(
        self, seed: int, manager: Any, preemption: PreemptionMode | None, lookahead: int, load: tuple[int, int, int]
    ) -> None:
        self.random, self.size = Random(seed), manager.block_size
        num_tokens, num_seqs, self.num_groups_max = load
        config = SchedulerConfig(num_tokens, num_seqs, 48, lookahead, True, preemption)
        self.now, self.arrives = 0, 0.5 if self.num_groups_max < 10 else 0.95
        self.scheduler = Scheduler(config, manager, lambda: float(self.now))
        self.groups: dict[str, SequenceGroup] = {}
        self.num_seqs = self.num_requests = 0
        self.prompts: list[list[int]] = [[]]

    def run(self, num_steps: int, forks: bool) -> None:
        """So many steps; who raises, ends the run."""
        for _ in range(num_steps):
            while len(self.groups) < self.num_groups_max and self.random.random() < self.arrives:
                self.arrive()
            self.step(forks)
        for name in list(self.groups):
            self.scheduler.abort_seq_group(name)

    def arrive(self) -> None:
        """A request, whose prompt often begins like another."""
        random = self.random
        prompt = random.choice(self.prompts)[: random.randint(0, NUM_TOKENS_MAX)]
        prompt = prompt + [random.randrange(3) for _ in range(random.randint(1, 8))]
        self.prompts = [*self.prompts[-5:], prompt]
        self.num_seqs += 1
        self.num_requests += 1
        group = SequenceGroup(f"request {self.num_requests}", [Sequence(self.num_seqs, prompt, self.size)])
        self.groups[group.request_id] = group
        self.scheduler.add_seq_group(group)

    def step(self, forks: bool) -> None:
        """One step, and what the engine does with its results."""
        random = self.random
        outputs = self.scheduler.schedule()
        self.now += 1
        for scheduled in outputs.scheduled_seq_groups:
            for seq in scheduled.seq_group.seqs:
                if seq.status == SequenceStatus.RUNNING:
                    seq.data.update_num_computed_tokens(scheduled.token_chunk_size)
        for scheduled in outputs.scheduled_seq_groups:
            group = scheduled.seq_group
            running = group.get_seqs(SequenceStatus.RUNNING)
            if any(seq.data.get_num_uncomputed_tokens() for seq in running):
                continue
            if forks and len(running) == 1 and random.random() < 0.2:
                self.num_seqs += 1
                child = running[0].fork(self.num_seqs)
                self.scheduler.fork_seq(running[0], child)
                group.add(child)
            for seq in group.get_seqs(SequenceStatus.RUNNING):
                seq.append_token_id(random.randrange(3))
                if seq.get_output_len() > NUM_TOKENS_MAX // 3 or random.random() < 0.1:
                    seq.status = SequenceStatus.FINISHED_STOPPED
        self.scheduler.free_finished_seq_groups()
        self.groups = {name: group for name, group in self.groups.items() if not group.is_finished()}


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Run a recorded server; the recording. Its manager takes the options."""

    def run(seed: int = 1, num_steps: int = 150, **options: Any) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        sizes = {"block_size": 4, "num_gpu_blocks": 16, "num_cpu_blocks": 12, "watermark": 0.1}
        preemption = options.pop("preemption", None)
        lookahead, forks = options.pop("lookahead", 0), options.pop("forks", True)
        may_raise = options.pop("may_raise", False)
        load = options.pop("max_batched", 12), options.pop("max_seqs", 6), options.pop("max_waiting", 5)
        given = {name: options.pop(name) for name in ("digest_key", "shows_pool") if name in options}
        manager = BlockManager(**{**sizes, **options})
        with record(manager, path, **given):
            server = Server(seed, manager, preemption, lookahead, load)
            with suppress(*[Exception] * may_raise):  # of a planted fault; the recording contains it
                server.run(num_steps, forks)
        return path

    return run


RECORD = """
import json, sys, tempfile
from pathlib import Path
from kvproof.check.recording.example_run import record_run
from kvproof.check.recording.validate import validate
from kvproof.check.subjects.registry import find

name, fixed, num_runs, fault = json.loads(sys.argv[1])
make, path = find(name), Path(tempfile.mkdtemp()) / "recording.jsonl"
if fault:
    exec(fault)
found, witnesses, num_lines = [], {}, 0
for seed in range(1, num_runs + 1):
    run = record_run(make, seed, 300, path, fixed, shows_pool=not fault and seed % 2 == 0)
    done = validate(path)
    num_lines += done.num_calls
    for witness, count in done.witnesses.items():
        witnesses[witness] = witnesses.get(witness, 0) + count
    finding = done.finding and [done.finding.property, json.loads(path.read_text().splitlines()[done.line - 1])["call"]]
    if finding or done.reason or run.finding:
        found.append([finding, done.reason, run.finding and run.finding.property])
print(json.dumps([found, num_lines, witnesses]))
"""


@pytest.fixture
def record_engine() -> Callable[..., Any]:
    """Records runs of an engine in another process, and returns the findings, the number of lines and the witnesses."""

    def run(
        release: str, subject: str, fixed: dict[str, Any], num_runs: int, fault: str = "", package: str = "vllm"
    ) -> Any:
        download.add(f"{package}=={release}")
        arguments = json.dumps([f"{subject}=={release}", fixed, num_runs, fault])
        done = subprocess.run(
            [sys.executable, "-c", RECORD, arguments], capture_output=True, text=True, check=True, timeout=280
        )
        return json.loads(done.stdout)

    return run
