"""Every marked suite to its end, in portions, and one table: suite, passed, failed, skipped, left, minutes, commit.

    make everything                       # all suites; goes on where it was stopped
    make everything SUITES="long ray"     # some of them
    make everything SECONDS=3000          # begins no test after so many seconds
    make everything ONLY=tests/models     # only the files whose path begins so; the table has all
    make everything WORKERS=3             # three tests of the suite `long` at the same time

Each file of a suite is one process of pytest, since a process can import one release of an engine. In the suite
`long`, whose tests import none and often wait for a limit, it may start workers of xdist. This module is also its
plugin: it writes every outcome to FILE as soon as it is there. An outcome belongs to the tree that it is about: a
commit, with a digest of what differs from it. What has an outcome for the present tree is not run again, so a run
that was stopped or killed loses one test. To repeat a failure, run its test with pytest; to begin again, remove FILE.

A test at which pytest itself died has failed. The exit code is 0 only if every test of the chosen suites ran, none
failed, and each suite passed at least one: skipped is not passed.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SUITES = ("long", "engine", "ray", "install", "browser")
FILE = Path("build/everything.jsonl")
MANY_AT_ONCE = "long"
RECORDING = "--recording"  # for the plugin: where to write, the suite, the tree, when to stop
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
LIMIT_SECONDS = 7_200  # of a test without a limit of its own: it ends a test that hangs, and none on a slow machine
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


# The records -------------------------------------------------------------------------------------------------------


@dataclass
class Suite:
    """What is known of a suite, of one tree. outcomes: by test. ended: the files that have no test left.

    seconds: what its tests took, one after the other; a machine that does other work needs more.
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    ended: set[str] = field(default_factory=set)
    begun: str = ""  # the test that began last

    def count(self, outcome: str) -> int:
        return list(self.outcomes.values()).count(outcome)


def recorded(file: Path, suite: str, tree: str) -> Suite:
    """What the file has about a suite of a tree. A line that a kill has cut off is left out."""
    found = Suite()
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if (one["suite"], one["tree"]) != (suite, tree):
            continue
        found.seconds += one.get("seconds", 0.0)
        if "ended" in one:
            found.ended.add(one["ended"])
        elif "begun" in one:
            found.begun = one["begun"]
        elif found.outcomes.get(one["test"]) != FAILED:  # one of setup, call and teardown may fail
            found.outcomes[one["test"]] = one["outcome"]
    return found


def write(file: Path, suite: str, tree: str, **what: str | float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps({"suite": suite, "tree": tree, **what}) + "\n")


def tree_of(folder: Path) -> str:
    """The commit, and a digest of what differs from it, if anything does."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True).stdout

    others = git("ls-files", "--others", "--exclude-standard", "-z").decode().split("\0")[:-1]
    changed = git("diff", "HEAD") + b"".join(name.encode() + (folder / name).read_bytes() for name in others)
    commit = git("rev-parse", "--short=10", "HEAD").decode().strip()
    return commit + (f"+{hashlib.sha256(changed).hexdigest()[:6]}" if changed else "")


# The plugin --------------------------------------------------------------------------------------------------------


class Recorder:
    """Leaves out the tests that have an outcome, and stops when the time is over."""

    def __init__(self, file: str, suite: str, tree: str, stop: float) -> None:
        self.file, self.suite, self.tree, self.stop = Path(file), suite, tree, stop
        self.known = recorded(self.file, suite, tree).outcomes

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = [item for item in items if item.nodeid in self.known]
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item.nodeid not in self.known]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if time.time() > self.stop:
            item.session.shouldstop = "the time is over"


class Writer(Recorder):
    """Also writes every outcome. A worker of xdist is no writer: it reports to the process that started it."""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        write(self.file, self.suite, self.tree, begun=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            seconds = round(report.duration, 1)
            write(self.file, self.suite, self.tree, test=report.nodeid, outcome=report.outcome, seconds=seconds)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            write(self.file, self.suite, self.tree, test=report.nodeid, outcome=FAILED)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(RECORDING, dest="recording", help="record the outcomes; JSON of the arguments of a Recorder")


def pytest_configure(config: pytest.Config) -> None:
    if (about := config.getoption("recording", None)) is not None:
        kind = Recorder if hasattr(config, "workerinput") else Writer
        config.pluginmanager.register(kind(**json.loads(about)))


# The runs ----------------------------------------------------------------------------------------------------------


def files_of(suite: str, folder: Path) -> list[str]:
    """The test files that name the mark of a suite."""
    tests = sorted((folder / "tests").rglob("test_*.py"))
    return [one.relative_to(folder).as_posix() for one in tests if re.search(rf"mark\.{suite}\b", one.read_text())]


def run(suite: str, folder: Path, file: Path, tree: str, stop: float, only: str, workers: int) -> None:
    """Run what is left of a suite in the files whose path begins with `only`, until `stop`."""
    for name in files_of(suite, folder):
        while name.startswith(only) and time.time() < stop and name not in recorded(file, suite, tree).ended:
            print(f"{suite}: {name}", flush=True)
            run_file(suite, name, folder, file, tree, stop, workers)


def run_file(suite: str, name: str, folder: Path, file: Path, tree: str, stop: float, workers: int) -> None:
    """Run what is left of a test file, until `stop`, or until pytest dies."""
    about = {"file": str(file.absolute()), "suite": suite, "tree": tree, "stop": stop}
    limit = f"timeout={LIMIT_SECONDS}"
    at_once = ["-p", "xdist", "-n", str(workers)] if suite == MANY_AT_ONCE and workers > 1 else ["-p", "no:xdist"]
    chosen = [*at_once, "-p", "tests.everything", "-o", limit, "-m", suite, name]
    command = [sys.executable, "-m", "pytest", "-q", *chosen]
    code = subprocess.run([*command, RECORDING, json.dumps(about)], cwd=folder).returncode
    after = recorded(file, suite, tree)
    if code in ENDED or name in after.outcomes:  # the name of a file has an outcome if it cannot be collected
        write(file, suite, tree, ended=name)
    elif code == pytest.ExitCode.INTERRUPTED:
        if time.time() < stop:
            raise KeyboardInterrupt
    elif after.begun.startswith(f"{name}::") and after.begun not in after.outcomes:
        print(f"pytest ended with {code} in {after.begun}")
        write(file, suite, tree, test=after.begun, outcome=FAILED)
    else:
        print(f"pytest ended with {code}")
        write(file, suite, tree, test=name, outcome=FAILED)
        write(file, suite, tree, ended=name)


def table(suites: Iterable[str], folder: Path, file: Path, tree: str) -> tuple[list[str], bool]:
    """The lines to print, and whether everything passed."""
    lines, is_good = (
        [f"{'suite':10}{'passed':>8}{'failed':>8}{'skipped':>9}{'files left':>12}{'minutes':>9}  commit"],
        True,
    )
    failures = []
    for suite in suites:
        found = recorded(file, suite, tree)
        left = [name for name in files_of(suite, folder) if name not in found.ended]
        passed, failed, skipped = (found.count(outcome) for outcome in (PASSED, FAILED, SKIPPED))
        lines.append(f"{suite:10}{passed:8,}{failed:8,}{skipped:9,}{len(left):12,}{found.seconds / 60:9,.0f}  {tree}")
        failures += [f"{suite}: {test}" for test, outcome in found.outcomes.items() if outcome == FAILED]
        is_good = is_good and passed > 0 and not failed and not left
    return [*lines, *(["", "failed:", *failures] if failures else [])], is_good


def main(arguments: Sequence[str] | None = None, folder: Path = Path()) -> int:
    parser = argparse.ArgumentParser(prog="everything", description="Run every marked suite to its end.")
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(SUITES)}; by default all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no test after so many seconds")
    parser.add_argument("--only", default="", metavar="PATH", help="only the files whose path begins so")
    parser.add_argument("--workers", type=int, default=1, help="tests of the suite long at the same time")
    options = parser.parse_args(arguments)
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    suites, file, tree = options.suites or SUITES, folder / FILE, tree_of(folder)
    stop = time.time() + options.seconds
    try:
        for suite in suites:
            run(suite, folder, file, tree, stop, options.only, options.workers)
    except KeyboardInterrupt:
        print("interrupted; start it again to go on")
    if tree_of(folder) != tree:
        print(
            "the files have changed meanwhile: what ran last may be about others than the table says", file=sys.stderr
        )
        return 1
    lines, is_good = table(suites, folder, file, tree)
    print("\n".join(lines))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
