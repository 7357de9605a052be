"""Check the data plane on a machine with an NVIDIA GPU, whose network and packages may be missing: `make gpu`.

    python3 -m benchmarks.gpu carry [--to DIR] [--python VERSION]     # on a machine with a network: make gpu-carry
    python3 -m benchmarks.gpu [--device cuda|simulated] [--carried DIR] [--out DIR] [--only STAGE …]

It needs only the standard library, and a Python whose torch has CUDA. The packages that kvproof needs besides torch and
triton are carried as wheels and unpacked beside the results. Each stage is a process with a time limit, and what it
found is in DIR when it ends: its output, its documents, and its line in summary.json and summary.md. The most telling
stage is the first. All limits together are less than nine minutes. With `--device simulated` every stage is tried
without a GPU, as far as one can be simulated; what cannot is listed as never run.

Exit code 0: all stages ran and found nothing. 1: a stage found something wrong. 2: there is no device, or no package.
4: a stage was not run, or did not end in its time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("spec", "impl", "models", "check", "reports", ".")
TESTS = ("tests/impl/test_kv_cache_engine.py", "tests/impl/test_kv_cache_engine_memory.py", "tests/check/data_plane")
TESTED_WITH = ("pytest", "pytest-timeout", "pytest-xdist")  # beside the dependencies of kvproof
THERE = {"torch", "triton", "numpy"}  # what the Python of a GPU machine has itself
CARRIED_MB_MAX = 64
NO_DEVICE = "import sys, torch; sys.exit(not torch.cuda.is_available())"


@dataclass(frozen=True)
class Stage:
    """One process. needs: a program without which it is not run. on_gpu: it says nothing of a simulated device."""

    name: str
    shows: str
    command: tuple[str, ...]
    seconds_max: int
    needs: str = ""
    on_gpu: bool = False


@dataclass
class Outcome:
    """The line of a stage. status: passed, failed, late or not run. text: why, or the last line of its output."""

    stage: str
    shows: str
    status: str
    seconds: float
    text: str
    command: str


def stages(device: str, out: Path) -> list[Stage]:
    """All stages, the most telling first. {out} of a command is the folder of its results."""
    python = sys.executable
    kvproof = (python, "-c", "from kvproof.check.cli import main; main()")
    checked = (*kvproof, "device", "--device", device)

    def run(seed: int, *more: str) -> tuple[str, ...]:
        folder = out / f"device-{seed}"
        return (*checked, "--seed", str(seed), "--out", str(folder), "--json", f"{folder}.json", *more)

    engine_tests = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS[0])
    return [
        Stage("facts", "which machine this is", (python, "-m", "benchmarks.gpu", "facts"), 30, on_gpu=True),
        Stage(
            "device-1",
            "bytes, layouts, types, executors, planted faults, races, speeds, text through the paged cache",
            run(1, "--budget", "120"),
            130,
        ),
        Stage(
            "tests",
            "the tests that are skipped without a GPU",
            (python, "-m", "pytest", "-q", "-n", "8", f"--junitxml={out / 'tests.xml'}", *TESTS),
            110,
        ),
        Stage(
            "speeds",
            "swap, copy and comparison per block size, beside plain copies, gathering and a plain read",
            (python, "-m", "benchmarks.gpu_speeds", "--json", str(out / "speeds.json")),
            90,
            on_gpu=True,
        ),
        Stage(
            "memory",
            "no access out of bounds in the engine's copies",
            ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "1", *engine_tests),
            70,
            needs="compute-sanitizer",
            on_gpu=True,
        ),
        Stage(
            "device-2",
            "the same with another seed, and its speeds beside those of the first",
            run(2, "--budget", "80", *(() if device == "simulated" else ("--baseline", f"{out / 'device-1.json'}"))),
            90,
        ),
    ]


def run_stage(stage: Stage, device: str, out: Path, environment: dict[str, str]) -> Outcome:
    """Run a stage and keep its output in `<name>.log`."""
    began = time.monotonic()

    def outcome(status: str, text: str) -> Outcome:
        seconds = round(time.monotonic() - began, 1)
        return Outcome(stage.name, stage.shows, status, seconds, text, " ".join(stage.command))

    if stage.on_gpu and device != "cuda":
        return outcome("not run", "a simulated device says nothing about it")
    if stage.needs and shutil.which(stage.needs) is None:
        return outcome("not run", f"{stage.needs} is not installed")
    log = out / f"{stage.name}.log"
    with log.open("wb") as file:
        try:
            done = subprocess.run(
                stage.command,
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=stage.seconds_max,
            )
        except subprocess.TimeoutExpired:
            return outcome("late", f"it did not end within {stage.seconds_max} s; {log.name} has what it printed")
    lines = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
    return outcome("failed" if done.returncode else "passed", f"{lines[-1][:200]} (exit code {done.returncode})")


def summary(device: str, outcomes: Sequence[Outcome], planned: Sequence[Stage]) -> str:
    """The page of a run: a line for each stage, and what was never run."""
    lines = [f"# The data plane on a {'GPU' if device == 'cuda' else 'simulated device'}", ""]
    lines += ["| stage | shows | status | seconds | output |", "|---|---|---|---:|---|"]
    for one in outcomes:
        text = one.text.replace("|", "\\|")
        lines.append(f"| {one.stage} | {one.shows} | {one.status} | {one.seconds} | {text} |")
    ended = {one.stage: one for one in outcomes}
    missing = [stage for stage in planned if stage.name not in ended or ended[stage.name].status in ("not run", "late")]
    lines += ["", "Never run to its end:" if missing else "Every stage was run."]
    lines += [f"- {stage.name}: {stage.shows}" for stage in missing]
    return "\n".join(lines) + "\n"


def check(device: str, carried: Path, out: Path, only: Sequence[str]) -> int:
    """Run the stages, and store the result of each when it ends. Returns the exit code."""
    out.mkdir(parents=True, exist_ok=True)
    environment = prepared(carried, out / "packages")
    if device == "cuda" and subprocess.run([sys.executable, "-c", NO_DEVICE], env=environment).returncode:
        print(
            f"{sys.executable} has no torch that finds a CUDA device; name another Python (make gpu PYTHON=…), or try "
            "everything else with make gpu GPU=simulated",
            file=sys.stderr,
        )
        return 2
    planned = [stage for stage in stages(device, out) if not only or stage.name in only]
    outcomes: list[Outcome] = []
    for stage in planned:
        print(f"{stage.name}: {stage.shows}", flush=True)
        outcomes.append(run_stage(stage, device, out, environment))
        print(f"  {outcomes[-1].status} after {outcomes[-1].seconds} s: {outcomes[-1].text}", flush=True)
        (out / "summary.json").write_text(json.dumps([asdict(one) for one in outcomes], indent=1) + "\n")
        (out / "summary.md").write_text(summary(device, outcomes, planned))
    print(f"Summary: {out / 'summary.md'}")
    found = {one.status for one in outcomes}
    return 1 if "failed" in found else 4 if found & {"late", "not run"} else 0


def prepared(carried: Path, packages: Path) -> dict[str, str]:
    """The environment of the stages. Carried wheels are unpacked once; without them the Python's own packages serve."""
    for wheel in sorted(carried.glob("*.whl")):
        if not (packages / (mark := f".{wheel.stem}")).exists():
            with zipfile.ZipFile(wheel) as file:
                file.extractall(packages)
            (packages / mark).touch()
    about = packages / "kvproof.dist-info"  # what an install would leave, for the version that reports name
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kvproof\nVersion: {_version()}\n")
    paths = [str(ROOT / folder) for folder in SOURCES] + [str(packages)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "120"}


def carry(to: Path, python: str) -> int:
    """Fetch the wheels that a GPU machine lacks, in the versions that kvproof is tested with. Returns the exit code."""
    to.mkdir(parents=True, exist_ok=True)
    pinned = re.findall(r"^([\w.-]+==[^\\\n]+)", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    versions = to / "versions.txt"
    versions.write_text("\n".join(pinned) + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(to)]
    platforms = [f"--platform=manylinux{tag}_x86_64" for tag in ("2014", "_2_17", "_2_27", "_2_28")]
    done = subprocess.run([*command, *platforms, f"--python-version={python}", "-c", str(versions), *_dependencies()])
    if done.returncode:
        print("the packages could not be fetched; pip says why above", file=sys.stderr)
        return 2
    for wheel in to.glob("*.whl"):
        if wheel.name.split("-")[0] in THERE:
            wheel.unlink()
    wheels = sorted(to.glob("*.whl"))
    megabytes = sum(wheel.stat().st_size for wheel in wheels) / 2**20
    print(f"{len(wheels)} packages, {megabytes:.1f} MB in {to}: {', '.join(one.name.split('-')[0] for one in wheels)}")
    if megabytes > CARRIED_MB_MAX:
        print(f"that is more than {CARRIED_MB_MAX} MB", file=sys.stderr)
        return 2
    return 0


def _dependencies() -> list[str]:
    """The names of what kvproof and its data plane depend on, and of what their tests need."""
    text, listed = (ROOT / "pyproject.toml").read_text(), list(TESTED_WITH)
    for name in ("dependencies", "device"):
        block = text[text.index(f"\n{name} = [") :]
        listed += re.findall(r'^\s*"([\w.-]+)', block[: block.index("\n]")], re.MULTILINE)
    return [name for name in listed if name not in THERE]


def _version() -> str:
    found = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return found[1] if found else "unknown"


def facts() -> int:
    """Print which GPU, driver and torch this machine has."""
    import torch

    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name(0)}")
    return subprocess.run(["nvidia-smi"]).returncode if shutil.which("nvidia-smi") else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu", description="The data plane on a GPU machine.")
    parser.add_argument("task", nargs="?", default="check", choices=("check", "carry", "facts"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "simulated"))
    parser.add_argument("--carried", "--to", type=Path, default=ROOT / "build/gpu-carry", help="the folder of wheels")
    parser.add_argument("--out", type=Path, default=ROOT / "build/gpu", help="the folder of the results")
    parser.add_argument("--only", nargs="*", default=[], metavar="STAGE", help="run only these stages")
    parser.add_argument("--python", default="3.12", help="the Python of the GPU machine, for which wheels are fetched")
    asked = parser.parse_args(arguments)
    if asked.task == "facts":
        return facts()
    if asked.task == "carry":
        return carry(asked.carried, asked.python)
    return check(asked.device, asked.carried.resolve(), asked.out.resolve(), asked.only)


if __name__ == "__main__":
    sys.exit(main())
