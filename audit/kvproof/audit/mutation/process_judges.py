"""Who notices a fault of the machinery, or of kvproof's own code: judges in processes that import the faulty copy.

Run as a program, this module prints the first difference between the obligations of its own machinery and the pinned
ones. An argument names the suite to begin with.
"""

import os
import resource
import signal
import subprocess
import sys
from functools import partial

from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.planting import ROOT, environment
from kvproof.check.hosts.descendants import end_with
from kvproof.models.pin import Pin, pinned_lines
from kvproof.models.suites import SUITES, obligations_of

CROSSCHECK = "tests/audit/crosscheck/test_specification.py"  # those of generated programs take longer
CPU_SECONDS_MAX, SECONDS_MAX = 600, 6_000.0  # of a process; a busy machine reaches the second one later, or never
BATCH = 300  # obligations, after which they are compared with the pin
# The copy is imported, nothing is written, and a busy machine fails no test.
SEPARATE = ("-p", "no:cacheprovider", "-p", "no:xdist", "-o", "pythonpath=", "-o", "timeout=0")


NUM_FAILED = 1  # pytest's exit code if tests fail; others mean that it did not run them
CANNOT_START = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError")


class NotJudged(Exception):
    """The judge did not come to an end, or to its beginning, so nobody has noticed what the fault does."""


def pin_notices(fault: Fault) -> str:
    """The first difference from the pin, or the error with which the machinery ends; empty if there is none.

    Raises NotJudged if the machinery cannot be imported, or does not end.
    """
    with environment(fault) as variables:
        found = _run([sys.executable, "-m", __name__, fault.subject], variables)
    error = _last_line(found.stderr)
    if found.returncode and error.startswith(CANNOT_START):
        raise NotJudged(f"the machinery with the fault cannot be imported: {error}")
    return found.stdout.strip() or (f"the machinery fails: {error}" if found.returncode else "")


def proof_notices(fault: Fault, *suites: str) -> str:
    """The first obligation about code that is not proved with the fault, or the error with which it cannot be made.

    suites: those that are asked; by default all about code. Empty if all are proved. Raises NotJudged if the code
    cannot be imported, or the proofs do not end.
    """
    with environment(fault) as variables:
        found = _run([sys.executable, "-m", "kvproof.audit.mutation.code", *suites], variables)
    error = _last_line(found.stderr)
    if found.returncode and error.startswith(CANNOT_START):
        raise NotJudged(f"the code with the fault cannot be imported: {error}")
    return found.stdout.strip() or (f"nothing can be proved: {error}" if found.returncode else "")


def suite_notices(fault: Fault, tests: tuple[str, ...]) -> str:
    """The name of the first of these tests that fails; empty if all pass. Raises NotJudged if they cannot be run."""
    with environment(fault) as variables:
        found = _run([sys.executable, "-m", "pytest", "-q", "-x", *SEPARATE, *tests], variables)
    if found.returncode == 0:
        return ""
    failed = [line.split(" - ")[0] for line in found.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if found.returncode != NUM_FAILED or not failed:
        raise NotJudged(f"the tests do not run with the fault: {_last_line(found.stdout + found.stderr)}")
    return failed[0]


def _run(command: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The output of a process. Raises NotJudged if it does not end in time; a slow machine notices nothing."""
    try:
        done = subprocess.run(
            command,
            env=variables,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            preexec_fn=partial(_begin, os.getpid()),
        )
    except subprocess.TimeoutExpired as error:
        raise NotJudged(f"no end within {SECONDS_MAX:.0f} s") from error
    if done.returncode == -signal.SIGXCPU:
        raise NotJudged(f"no end within {CPU_SECONDS_MAX:.0f} s of processor time")
    return done


def _begin(parent: int) -> None:
    """Limit the processor time of this process, and end it with its parent, which may be killed."""
    end_with(parent)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no output")


def first_difference(first_suite: str) -> str:
    """A difference between the obligations and the pinned ones, as soon as one is found; empty if there is none."""
    pinned = pinned_lines()
    for suite in sorted(SUITES, key=lambda suite: suite != first_suite):
        pin = Pin()
        for number, one in enumerate(obligations_of(suite), 1):
            pin.add(one)
            if number % BATCH == 0 and (found := next(pin.differences(pinned, lambda _: False), "")):
                return found
        if found := next(pin.differences(pinned, lambda name: name.startswith(f"{suite}/")), ""):  # noqa: B023
            return found
    return ""


if __name__ == "__main__":
    print(first_difference(sys.argv[1]))
