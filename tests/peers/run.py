"""vLLM 0.9.2's own unit tests of its block manager and scheduler, on vLLM itself and on kvproof's block manager.

The tests and the modules around the manager come from the release's source archive, fetched when it is not here;
nothing of it is ever committed. Both runs use one harness, so that a test that fails on kvproof only is about kvproof
only. `expected.toml` names each test that is not meant to pass, with the reason. The exit status is 0 if, and only if,
all tests pass on vLLM, at least 930 pass on kvproof, and those that do not are exactly those named.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from kvproof.check.subjects.loading import EngineError, pip_client

if sys.version_info >= (3, 11):
    import tomllib
else:  # its test runs there too
    import tomli as tomllib

RELEASE = "0.9.2"
PASSED_AT_LEAST = 930
SECONDS_MAX = 1800
TESTS = (
    "tests/core/block",
    "tests/core/test_scheduler.py",
    "tests/core/test_chunked_prefill_scheduler.py",
    "tests/core/test_scheduler_encoder_decoder.py",
)
# Whole-model tests: a folder, and one test with three sets of parameters.
NEEDS_A_MODEL = (
    "--ignore=tests/core/block/e2e",
    "--deselect=tests/core/test_chunked_prefill_scheduler.py::test_chunked_prefill_with_actual_engine",
)
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "peers"
KEPT = (("vllm", "**/*.py"), ("tests", "__init__.py"), ("tests/core", "**/*.py"))


class Outcome(NamedTuple):
    """How one test ended."""

    passed: bool
    why: str  # the first line of what failed; empty if nothing did


class Reason(NamedTuple):
    """Why some tests are not meant to pass."""

    kind: str
    sentence: str
    tests: frozenset[str]


def read_expected(file: Path) -> list[Reason]:
    """The tests that are not meant to pass, by reason."""
    with file.open("rb") as opened:
        entries = tomllib.load(opened)["reason"]
    return [Reason(entry["kind"], entry["sentence"], frozenset(entry["tests"])) for entry in entries]


def complaints(vllm: Mapping[str, Outcome], ours: Mapping[str, Outcome], expected: Iterable[Reason]) -> list[str]:
    """What is not as it should be, one line each; none if the run is good."""
    named = {test for reason in expected for test in reason.tests}
    said = [f"fails on vLLM itself: {test} ({outcome.why})" for test, outcome in vllm.items() if not outcome.passed]
    said += [f"ran on vLLM only: {test}" for test in vllm if test not in ours]
    said += [f"ran on kvproof only: {test}" for test in ours if test not in vllm]
    said += [
        f"fails, and no reason is given: {test} ({outcome.why})"
        for test, outcome in ours.items()
        if not outcome.passed and test not in named
    ]
    said += [
        f"passes; take it out of expected.toml: {test}" for test in sorted(named) if test in ours and ours[test].passed
    ]
    said += [f"in expected.toml, but there is no such test: {test}" for test in sorted(named) if test not in ours]
    num_passed = count_passed(ours)
    if num_passed < PASSED_AT_LEAST:
        said.append(f"{num_passed} tests pass; at least {PASSED_AT_LEAST} must")
    return said


def count_passed(outcomes: Mapping[str, Outcome]) -> int:
    """How many passed."""
    return sum(outcome.passed for outcome in outcomes.values())


def table(vllm: Mapping[str, Outcome], ours: Mapping[str, Outcome], expected: Iterable[Reason]) -> str:
    """Counts per file, and the reasons."""
    lines = [f"{'':<58}{'tests':>6}{'vLLM':>8}{'kvproof':>9}"]
    files = Counter(test.partition("::")[0] for test in vllm)
    for name, num_tests in sorted(files.items()):
        passed = [count_passed({t: o for t, o in run.items() if t.startswith(f"{name}::")}) for run in (vllm, ours)]
        lines.append(f"{name:<58}{num_tests:>6}{passed[0]:>8}{passed[1]:>9}")
    lines.append(f"{'passed in all':<58}{len(vllm):>6}{count_passed(vllm):>8}{count_passed(ours):>9}")
    lines.append("")
    for reason in expected:
        names = sorted({test.rpartition("::")[2].partition("[")[0] for test in reason.tests})
        lines.append(f"{len(reason.tests):>4} not passed: {', '.join(names)}")
        lines.append(f"     {reason.kind}: {reason.sentence}")
    return "\n".join(lines)


def bring() -> Path:
    """The folder with the release's modules and tests. Raises EngineError."""
    target = BUILD / f"vllm-{RELEASE}"
    if target.is_dir():
        return target
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=BUILD) as scratch:
        for tree in pip_client.fetch(f"vllm=={RELEASE}", Path(scratch)):
            if not (tree / "tests" / "core").is_dir():
                continue
            kept = Path(scratch) / "kept"
            for folder, pattern in KEPT:
                for file in (tree / folder).glob(pattern):
                    copy = kept / file.relative_to(tree)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, copy)
            (kept / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # else pytest reads ours
            kept.rename(target)
            return target
    raise EngineError(f"the package index has no source archive of vllm {RELEASE} with its tests in it")


def start(subject: str, python: Path, folder: Path) -> "subprocess.Popen[bytes]":
    """Begin one run; its output goes to a log beside its results."""
    results(subject).unlink(missing_ok=True)
    sources = [str(ROOT / part) for part in ("spec", "impl", "check")]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "KVPROOF_PEERS_RESULTS": str(results(subject)),
        "KVPROOF_PEERS_SUBJECT": subject,
        "PYTHONPATH": os.pathsep.join([*sources, str(HERE)]),
        "VLLM_USE_V1": "0",
    }
    command = [str(python), "-m", "pytest", "--noconftest", "-p", "peer_plugin", "-p", "no:cacheprovider", "-q"]
    with (BUILD / f"{subject}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, *NEEDS_A_MODEL, *TESTS], cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )


def results(subject: str) -> Path:
    """Where a run leaves its outcomes."""
    return BUILD / f"{subject}.jsonl"


def outcomes(subject: str) -> dict[str, Outcome]:
    """The outcomes of a finished run; a test that failed in any of its phases failed."""
    found: dict[str, Outcome] = {}
    if results(subject).exists():
        for line in results(subject).read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            before = found.get(said["test"], Outcome(True, ""))
            if before.passed:
                found[said["test"]] = Outcome(said["outcome"] == "passed", said["why"])
    return found


def main() -> int:
    """Run both, print the table and what is wrong; 0 if nothing is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="of the environment with vLLM's dependencies")
    python = parser.parse_args().python.absolute()
    try:
        folder = bring()
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"vLLM {RELEASE}'s unit tests run on vLLM and on kvproof; the logs are in {BUILD.relative_to(ROOT)}", flush=True
    )
    runs = [start(subject, python, folder) for subject in ("vllm", "kvproof")]
    try:
        for run in runs:
            run.wait(SECONDS_MAX)
    finally:
        for run in runs:
            run.kill()
    vllm, ours = outcomes("vllm"), outcomes("kvproof")
    expected = read_expected(HERE / "expected.toml")
    print(table(vllm, ours, expected))
    wrong = complaints(vllm, ours, expected)
    print("\n".join(["", *wrong]) if wrong else "\nas expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
