"""Check the data plane on a machine with an NVIDIA GPU, whose network and packages may be missing: `make gpu`.

    python3 -m benchmarks.gpu carry [--to DIR] [--python VERSION …]   # on a machine with a network: make gpu-carry
    python3 -m benchmarks.gpu [--device cuda|simulated] [--carried DIR] [--out DIR] [--archive FILE] [--only STAGE …]
                              [--resume]

It needs only the standard library, and a Python whose torch has CUDA. The other packages that kvproof needs are carried
as wheels, compared with the hashes that `carry` wrote, and unpacked into the folder of the results. Each stage is a
process group with a time limit, and its results are in DIR when it ends: its output, its documents, and its line in
summary.json and summary.md. The most telling stages are first. On a GPU all limits together are less than nine minutes.
With `--archive` all results are also in one compressed file, written anew when a stage ends: a machine that is lent for
minutes may give back few files, or end in the middle of a stage.

With `--device simulated` each stage that says something about a simulated device runs without a GPU, for as long as it
needs; the others are left out and listed as never run. With `--resume` stages that ended in an earlier run with the
same DIR are not run again.

Exit code 0: all stages ran and found nothing, or say nothing about a simulated device. 1: a stage found something
wrong. 2: there is no device, a package is missing or damaged, or the results cannot be stored. 4: a stage was not run,
did not end in its time, or did not decide everything. 130, 143: interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.gpu_wheels import PYTHONS, ROOT, BadWheel, carry, unpack, unpack_carried

SOURCES = ("spec", "impl", "models", "check", "reports", ".")
ENGINE_TESTS = ("tests/impl/test_kv_cache_engine.py", "tests/impl/test_row_copier.py")
GPU_TESTS = (*ENGINE_TESTS, "tests/impl/test_kv_cache_engine_memory.py")
TESTS = (*GPU_TESTS, "tests/check/data_plane")
OTHERS_OF_PYTEST = ("-p", "no:benchmark")  # a plugin that warns beside xdist, and warnings are errors here
MEMCHECK = ("--tool", "memcheck", "--error-exitcode", "1", "--target-processes", "all")
REFERENCES = ("vllm-reference", "sglang-reference")
KERNELS = {"vllm": "vllm", "sglang": "sgl_kernel"}  # the executors of engines, and the package of each
PACKAGES, ENGINES = "packages", "engines"  # in the folder of the results: unpacked wheels
NO_DEVICE = "import sys, torch; sys.exit(not torch.cuda.is_available())"
HAS_PACKAGES = "import kvproof.check.cli, kvproof.check.data_plane, pytest, xdist"
SIMULATED_SECONDS_MAX = 3600  # of a stage, on a machine that may be busy; it ends sooner unless it hangs
PASSED, FAILED, UNDECIDED, LATE, NOT_RUN, LEFT_OUT = "passed", "failed", "undecided", "late", "not run", "left out"
INCONCLUSIVE = 4  # the exit code of kvproof if something planned was not decided


class Unprepared(Exception):
    """The machine lacks something that every stage needs. The message is for the user."""


@dataclass(frozen=True)
class Stage:
    """One process.

    needs: a program without which it is not run. on_gpu: it says nothing about a simulated device. is_kvproof: the
    process is kvproof, whose exit code 4 says that something was not decided. needs_engines: it is run only with wheels
    of engines, and it alone can import them: a kernel that breaks the device breaks no other stage.
    """

    name: str
    shows: str
    command: tuple[str, ...]
    seconds_max: int
    needs: str = ""
    on_gpu: bool = False
    is_kvproof: bool = False
    needs_engines: bool = False


@dataclass
class Outcome:
    """The line of a stage. text: why it has this status, or the last line of its output.

    status: passed, failed, undecided (kvproof could not decide everything), late, not run, or left out if it says
    nothing about the simulated device.
    """

    stage: str
    shows: str
    status: str
    seconds: float
    text: str
    command: str


def stages(device: str, out: Path) -> list[Stage]:
    """All stages, the most telling first. out: the folder of the results."""
    python, is_gpu = sys.executable, device == "cuda"
    checked = (python, "-c", "from kvproof.check.cli import main; main()", "device", "--device", device)
    tests = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *OTHERS_OF_PYTEST)
    at_once = ("-n", str(min(8, os.cpu_count() or 1)))

    def run(name: str, seed: int, *more: str, budget: int) -> tuple[str, ...]:
        results = ("--out", str(out / name), "--json", str(out / f"{name}.json"))
        return (*checked, "--seed", str(seed), *results, *more, *(("--budget", str(budget)) if is_gpu else ()))

    def limit(seconds: int) -> int:
        return seconds if is_gpu else SIMULATED_SECONDS_MAX

    references = [option for name in REFERENCES for option in ("--executor", name)]
    given = _given_kernels(out)
    kernels = [option for name in given for option in ("--executor", name)]
    some = [f"--layout={name}" for name in ("two-planes", "nhd", "latent")] + ["--dtype=bfloat16", "--dtype=int8"]
    return [
        Stage("facts", "which machine this is", (python, "-m", "benchmarks.gpu", "facts"), 15, on_gpu=True),
        Stage(
            "gpu-tests",
            "the tests that are skipped without a GPU",
            (*tests, "-k", "cuda", f"--junitxml={out / 'gpu-tests.xml'}", *GPU_TESTS),
            20,
            on_gpu=True,
        ),
        Stage(
            "device-1",
            "bytes, layouts, types, executors, planted faults, races, speeds, text through the paged cache",
            run("device-1", 1, budget=75),
            limit(90),
            is_kvproof=True,
        ),
        Stage(
            "operators",
            "the calls of the operators of vLLM and SGLang, against their reference semantics, not their kernels",
            run("operators", 1, *references, *some, budget=18),
            limit(25),
            is_kvproof=True,
        ),
        Stage(
            "kernels",
            f"the kernels of the engines whose wheels are given: {' and '.join(given) or 'none'}",
            run("kernels", 1, *kernels, *some, budget=33),
            limit(43),
            on_gpu=True,
            is_kvproof=True,
            needs_engines=True,
        ),
        Stage(
            "speeds",
            "swap, copy and comparison per block size, beside plain copies, gathering and a plain read",
            (python, "-m", "benchmarks.gpu_speeds", "--json", str(out / "speeds.json")),
            48,
            on_gpu=True,
        ),
        Stage(
            "regressions",
            "a copy that is 20 % slower is named against a baseline, and a good run is not",
            (python, "-m", "benchmarks.gpu_regressions", "--out", str(out / "regressions")),
            104,
            on_gpu=True,
        ),
        Stage(
            "memory",
            "no access out of bounds in the engine's copies",
            ("compute-sanitizer", *MEMCHECK, *tests, "-k", "cuda", *ENGINE_TESTS),
            14,
            needs="compute-sanitizer",
            on_gpu=True,
        ),
        Stage(
            "tests",
            "the tests of the harness, with the torch of this machine",
            (*tests, *at_once, f"--junitxml={out / 'tests.xml'}", *TESTS),
            limit(40),
        ),
        Stage(
            "device-2",
            "the same as device-1 with another seed, and its speeds beside those of the first",
            run("device-2", 2, "--baseline", str(out / "device-1.json"), budget=75),
            90,
            on_gpu=True,
            is_kvproof=True,
        ),
        Stage(
            "breaking",
            "wrong bytes, an access out of bounds and an endless kernel are named, and nothing after them is passed",
            (python, "-m", "benchmarks.gpu_breaking", "--out", str(out / "breaking")),
            48,
            on_gpu=True,
        ),
    ]


def run_stage(stage: Stage, device: str, out: Path, environment: dict[str, str]) -> Outcome:
    """Run a stage and keep its output in `<name>.log`."""
    began = time.monotonic()

    def outcome(status: str, text: str) -> Outcome:
        seconds = round(time.monotonic() - began, 1)
        return Outcome(stage.name, stage.shows, status, seconds, text, " ".join(stage.command))

    if stage.on_gpu and device != "cuda":
        return outcome(LEFT_OUT, "a simulated device says nothing about it")
    if stage.needs and shutil.which(stage.needs) is None:
        return outcome(NOT_RUN, f"{stage.needs} is not installed")
    log = out / f"{stage.name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            stage.command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(stage.seconds_max)
        except subprocess.TimeoutExpired:
            return outcome(LATE, f"it did not end within {stage.seconds_max} s; {log.name} has what it printed")
        finally:
            _end(process)
    lines = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
    status = UNDECIDED if code == INCONCLUSIVE and stage.is_kvproof else FAILED if code else PASSED
    return outcome(status, f"{lines[-1][:200]} (exit code {code})")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a process and of those that it started, such as the workers of the tests."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def summary(device: str, outcomes: Sequence[Outcome], planned: Sequence[Stage]) -> str:
    """The page of a run: a line for each stage, and what was never run."""
    lines = [f"# The data plane on a {'GPU' if device == 'cuda' else 'simulated device'}", ""]
    lines += ["| stage | shows | status | seconds | output |", "|---|---|---|---:|---|"]
    for one in outcomes:
        text = one.text.replace("|", "\\|")
        lines.append(f"| {one.stage} | {one.shows} | {one.status} | {one.seconds} | {text} |")
    ended = {one.stage: one for one in outcomes}
    has_ended = {name for name, one in ended.items() if one.status in (PASSED, FAILED)}
    missing = [stage for stage in planned if stage.name not in has_ended]
    lines += ["", "Never run to its end:" if missing else "Every stage was run."]
    lines += [f"- {stage.name}: {stage.shows}" for stage in missing]
    return "\n".join(lines) + "\n"


def check(
    device: str,
    out: Path,
    environment: dict[str, str],
    only: Sequence[str] = (),
    is_resumed: bool = False,
    archive: Path | None = None,
) -> int:
    """Run the stages, and store the result of each when it ends. Returns the exit code. Raises OSError."""
    planned = [stage for stage in stages(device, out) if not only or stage.name in only]
    with_engines = {"PYTHONPATH": os.pathsep.join((environment.get("PYTHONPATH", ""), str(out / ENGINES)))}
    planned = [stage for stage in planned if not stage.needs_engines or _given_kernels(out)]
    earlier = ended_before(out) if is_resumed else {}
    outcomes: list[Outcome] = []
    for stage in planned:
        print(f"{stage.name}: {stage.shows}", flush=True)
        same = earlier.get(stage.name)
        is_kept = same is not None and same.command == " ".join(stage.command)
        its = environment | (with_engines if stage.needs_engines else {})
        outcomes.append(same if same is not None and is_kept else run_stage(stage, device, out, its))
        kept = ", in the earlier run" if is_kept else ""
        print(f"  {outcomes[-1].status} after {outcomes[-1].seconds} s{kept}: {outcomes[-1].text}", flush=True)
        (out / "summary.json").write_text(json.dumps([asdict(one) for one in outcomes], indent=1) + "\n")
        (out / "summary.md").write_text(summary(device, outcomes, planned))
        if archive is not None:
            _store_in(archive, out)
    print(f"Summary: {out / 'summary.md'}")
    found = {one.status for one in outcomes}
    return 1 if FAILED in found else 4 if found & {UNDECIDED, LATE, NOT_RUN} else 0


def _given_kernels(out: Path) -> list[str]:
    """The executors of engines whose wheels were unpacked."""
    return [name for name, package in KERNELS.items() if (out / ENGINES / package).exists()]


def _store_in(archive: Path, out: Path) -> None:
    """Put all results into one file. While it is written, the one before is left as it was."""
    unfinished = archive.with_name(f"{archive.name}.unfinished")
    with tarfile.open(unfinished, "w:gz") as file:
        for one in sorted(out.iterdir()):
            if one.name not in (PACKAGES, ENGINES):
                file.add(one, one.name)
    unfinished.replace(archive)


def ended_before(out: Path) -> dict[str, Outcome]:
    """The stages that ended in an earlier run with this folder, by name."""
    try:
        listed = [Outcome(**one) for one in json.loads((out / "summary.json").read_text())]
    except (FileNotFoundError, ValueError, TypeError):
        return {}
    return {one.stage: one for one in listed if one.status in (PASSED, FAILED)}


def require_device(device: str, environment: dict[str, str]) -> None:
    """Raises Unprepared if Python has no torch with a CUDA device, or a package is missing."""
    if device == "cuda" and subprocess.run([sys.executable, "-c", NO_DEVICE], env=environment).returncode:
        raise Unprepared(
            f"{sys.executable} has no torch that finds a CUDA device; name another Python (make gpu PYTHON=…), or try "
            "everything else with make gpu GPU=simulated"
        )
    done = subprocess.run([sys.executable, "-c", HAS_PACKAGES], env=environment, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise Unprepared(
            f"{sys.executable} cannot import kvproof ({reason}); run make gpu-carry on a machine with a network, and "
            "copy build/gpu-carry to this one"
        )


def prepared(carried: Path, packages: Path, engines: Path | None = None) -> dict[str, str]:
    """The environment of the stages. Carried wheels are unpacked once; without them the Python's own packages serve.

    engines: a folder with wheels of engines, whose kernels are then run too; they must fit the torch of this machine.

    Raises Unprepared if a wheel is missing or is not the one that was fetched.
    """
    try:
        unpack_carried(carried, packages)
    except BadWheel as error:
        raise Unprepared(str(error)) from error
    for wheel in sorted(engines.glob("*.whl")) if engines else ():
        unpack(wheel, packages.with_name(ENGINES))
    about = packages / "kvproof.dist-info"  # what an install would leave, for the version that reports name
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kvproof\nVersion: {_version()}\n")
    paths = [str(ROOT / folder) for folder in SOURCES] + [str(packages)]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "120",
        "KVPROOF_ANY_TORCH": "1",  # a machine without a network has the torch that it has
    }


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
    parser.add_argument("--archive", type=Path, metavar="FILE", help="keep all results in one .tar.gz file too")
    parser.add_argument("--only", nargs="*", default=[], metavar="STAGE", help="run only these stages")
    parser.add_argument("--python", nargs="*", default=PYTHONS, help="the versions of Python to fetch wheels for")
    parser.add_argument("--engines", type=Path, help="a folder with wheels of vllm or sgl-kernel, to run their kernels")
    parser.add_argument("--resume", action="store_true", help="do not run stages again that ended in an earlier run")
    asked = parser.parse_args(arguments)
    if asked.task == "facts":
        return facts()
    if asked.task == "carry":
        return carry(asked.carried, asked.python)
    try:
        carried, out = asked.carried.resolve(), asked.out.resolve()
        environment = prepared(carried, out / PACKAGES, asked.engines)
        require_device(asked.device, environment)
        return check(asked.device, out, environment, asked.only, asked.resume, asked.archive)
    except Unprepared as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"the results cannot be stored in {asked.out}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; {asked.out} has the results, and make gpu RESUME=1 runs the rest", file=sys.stderr)
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a stage is killed with the processes it started
    sys.exit(main())
