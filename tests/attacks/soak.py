"""A long hunt of a right subject: it must find nothing, and kvproof must not grow.

    python -m tests.attacks.soak kvproof --seconds 3600 --out build/soak

It runs `kvproof hunt`, and looks at its processes every few seconds: the main memory, open descriptors and number of
processes. After the hunt it prints how many operations were done, what was refuted (each of it a false alarm), and how
fast the memory of each process that lives as long as the hunt grew: the slope of the line through the samples after the
first quarter, in MB per hour. Forks of the subject live for seconds; their largest memory is printed. The exit code is
1 if something was refuted, the hunt failed, or something grew.
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.attacks.processes import MARK, left_after, processes_of

from kvproof.reports.document import read
from kvproof.reports.result import Result
from kvproof.spec.verdict import Verdict

SAMPLE_SECONDS = 5.0
WARM_UP = 0.25  # of the samples: caches fill
GROWTH_MB_MAX = 8.0  # per hour, of one process; the allocator's noise in an hour is below it
START_SECONDS_MAX = 120.0  # beyond the budget, for the start and the reports


@dataclass(frozen=True)
class Sample:
    """What the processes of a hunt use at one moment; MB of main memory.

    main: the command. server: the process that forks the subject, 0 without one. forks: all other processes together.
    """

    seconds: float
    main: float
    server: float
    forks: float
    descriptors: int
    processes: int


def megabytes_of(pid: int) -> float:
    """The main memory of a process, with the pages that it shares. 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) / 1024
    except (OSError, StopIteration):
        return 0.0


def _descriptors_of(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def sample(run: str, main: int, seconds: float) -> Sample:
    """Look at all processes of the run."""
    pids = processes_of(run)
    memory = {pid: megabytes_of(pid) for pid in pids}
    servers = {pid for pid in pids if _parent_of(pid) == main}
    forks = sum(memory[pid] for pid in pids if pid != main and pid not in servers)
    server = sum(memory[pid] for pid in servers)
    descriptors = sum(map(_descriptors_of, {main, *servers} & set(pids)))
    return Sample(seconds, memory.get(main, 0.0), server, forks, descriptors, len(pids))


def growth(samples: list[Sample], field: str) -> float:
    """The slope of a field per hour, after the first samples."""
    kept = samples[int(len(samples) * WARM_UP) :]
    if len(kept) < 2:
        return 0.0
    return 3600 * statistics.linear_regression([s.seconds for s in kept], [getattr(s, field) for s in kept]).slope


def soak(subject: str, seconds: float, out: Path) -> dict[str, object]:
    """Hunt for so many seconds. Returns the figures, which are in OUT/soak.json too; the samples are beside them."""
    out.mkdir(parents=True, exist_ok=True)
    run, samples = secrets.token_hex(8), list[Sample]()
    command = ["hunt", "--subject", subject, "--seed", "1", "--budget", f"{seconds:g}", "--out", str(out / "hunt")]
    with (out / "log").open("wb") as log, (out / "samples.jsonl").open("w") as lines:
        began = time.monotonic()
        hunt = subprocess.Popen(
            [sys.executable, "-m", "kvproof.check.cli.app", *command],
            env={**os.environ, MARK: run},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        while hunt.poll() is None:
            time.sleep(SAMPLE_SECONDS)
            now = time.monotonic() - began
            if hunt.poll() is None and now < seconds:
                samples.append(sample(run, hunt.pid, now))
                lines.write(json.dumps(asdict(samples[-1])) + "\n")
                lines.flush()
            if now > seconds + START_SECONDS_MAX:
                hunt.kill()
    figures = {
        "subject": subject,
        "seconds": round(time.monotonic() - began),
        "exit code": hunt.returncode,
        "processes left": len(left_after(run, 10.0)),
        **_result_of(out / "hunt" / "result.json"),
        **{f"{name} MB": _range(samples, name) for name in ("main", "server", "forks")},
        **{f"{name} MB per hour": round(growth(samples, name), 2) for name in ("main", "server")},
        "descriptors": _range(samples, "descriptors"),
        "processes": _range(samples, "processes"),
    }
    (out / "soak.json").write_text(json.dumps(figures, indent=1) + "\n")
    return figures


def _range(samples: list[Sample], field: str) -> list[float]:
    """The first, the middle one of the last tenth, and the largest value of a field."""
    values = [round(float(getattr(one, field)), 1) for one in samples]
    return [values[0], statistics.median(values[-max(1, len(values) // 10) :]), max(values)] if values else []


def _result_of(path: Path) -> dict[str, object]:
    result = read(path, Result)
    done: dict[str, int] = {}
    for check in result.checks:
        for name, count in check.counts.items():
            done[f"{check.judge} {name}"] = max(count, done.get(f"{check.judge} {name}", 0))
    refuted = [check.id for check in result.checks if check.verdict is Verdict.REFUTED]
    return done | {"refuted": refuted, "is complete": result.run.is_complete}


def is_good(figures: dict[str, object]) -> bool:
    """Whether nothing was refuted, nothing is left, and nothing grew."""
    grown = [figures["main MB per hour"], figures["server MB per hour"]]
    return (
        figures["exit code"] == 0
        and not figures["processes left"]
        and not figures["refuted"]
        and all(isinstance(slope, float) and slope < GROWTH_MB_MAX for slope in grown)
    )


def main() -> int:
    """Run one soak and print its figures."""
    arguments = argparse.ArgumentParser(description="A long hunt of a right subject, whose processes are measured.")
    arguments.add_argument("subject")
    arguments.add_argument("--seconds", type=float, default=3600.0)
    arguments.add_argument("--out", type=Path, default=Path("build/soak"))
    given = arguments.parse_args()
    figures = soak(given.subject, given.seconds, given.out)
    print(json.dumps(figures, indent=1))
    return 0 if is_good(figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
