"""Run vLLM 0.9.2's unit tests of its block manager and scheduler on vLLM itself and on kvproof's block manager.

The tests and the modules around the manager come from the source archive of the release, which is downloaded if it is
missing and never committed. Both runs use the same harness, so a test that fails on kvproof only shows a difference of
kvproof. `expected.toml` names each test that is expected to fail on kvproof, with the reason. The exit status is 0 if
and only if all tests pass on vLLM, at least 930 pass on kvproof, and exactly the named ones fail there.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from kvproof.check.subjects.loading import EngineError, download

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
    """The outcome of one test."""

    passed: bool
    why: str  # the first line of the failure; empty if it passed


class Reason(NamedTuple):
    """Why some tests are expected to fail."""

    kind: str
    sentence: str
    tests: frozenset[str]


def read_expected(file: Path) -> list[Reason]:
    """Read the tests that are expected to fail, by reason."""
    with file.open("rb") as opened:
        entries = tomllib.load(opened)["reason"]
    return [Reason(entry["kind"], entry["sentence"], frozenset(entry["tests"])) for entry in entries]


def complaints(vllm: Mapping[str, Outcome], ours: Mapping[str, Outcome], expected: Iterable[Reason]) -> list[str]:
    """Return what is wrong, one line each; [] if the run is as expected."""
    named = {test for reason in expected for test in reason.tests}
    wrong = [f"fails on vLLM itself: {test} ({outcome.why})" for test, outcome in vllm.items() if not outcome.passed]
    wrong += [f"ran on vLLM only: {test}" for test in vllm if test not in ours]
    wrong += [f"ran on kvproof only: {test}" for test in ours if test not in vllm]
    wrong += [
        f"fails, and no reason is given: {test} ({outcome.why})"
        for test, outcome in ours.items()
        if not outcome.passed and test not in named
    ]
    wrong += [
        f"passes; take it out of expected.toml: {test}" for test in sorted(named) if test in ours and ours[test].passed
    ]
    wrong += [f"in expected.toml, but there is no such test: {test}" for test in sorted(named) if test not in ours]
    num_passed = count_passed(ours)
    if num_passed < PASSED_AT_LEAST:
        wrong.append(f"{num_passed} tests pass; at least {PASSED_AT_LEAST} must")
    return wrong


def count_passed(outcomes: Mapping[str, Outcome]) -> int:
    """Number of tests that passed."""
    return sum(outcome.passed for outcome in outcomes.values())


def table(vllm: Mapping[str, Outcome], ours: Mapping[str, Outcome], expected: Iterable[Reason]) -> str:
    """Return a table of the counts per file, and the reasons."""
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
    """Return the folder with the modules and tests of the release, after a download if needed. Raises EngineError."""
    target = BUILD / f"vllm-{RELEASE}"
    if target.is_dir():
        return target
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=BUILD) as scratch:
        for tree in download.fetch(f"vllm=={RELEASE}", Path(scratch)):
            if not (tree / "tests" / "core").is_dir():
                continue
            kept = Path(scratch) / "kept"
            for folder, pattern in KEPT:
                for file in (tree / folder).glob(pattern):
                    copy = kept / file.relative_to(tree)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, copy)
            (kept / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # else pytest reads the one of kvproof
            kept.rename(target)
            return target
    raise EngineError(f"the package index has no source archive of vllm {RELEASE} with its tests in it")


def start(subject: str, python: Path, folder: Path) -> "subprocess.Popen[bytes]":
    """Start one run; its output goes to a log beside its results."""
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
    """The file to which a run writes its outcomes."""
    return BUILD / f"{subject}.jsonl"


def outcomes(subject: str) -> dict[str, Outcome]:
    """Read the outcomes of a finished run; a test that failed in any of its phases has failed."""
    found: dict[str, Outcome] = {}
    if results(subject).exists():
        for line in results(subject).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            before = found.get(record["test"], Outcome(True, ""))
            if before.passed:
                found[record["test"]] = Outcome(record["outcome"] == "passed", record["why"])
    return found


def main() -> int:
    """Run both, print the table and the complaints; returns 0 if there are none."""
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
