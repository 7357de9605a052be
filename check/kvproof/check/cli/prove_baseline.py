"""Efforts of a proof run, written to a file and read from one."""

import json
from pathlib import Path

import msgspec
import z3

from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import explained
from kvproof.models.solvers.solver_effort import Efforts, changes, efforts, worse
from kvproof.models.solvers.solving import Decided

SOLVER = f"z3 {z3.get_version_string()}"


def read_baseline(file: Path, seed: int) -> Efforts:
    """The efforts that a file holds, if a run with this seed can be compared. Raises UsageError, StoreError."""
    with explained(file):
        data = file.read_bytes()
    try:
        before = msgspec.json.decode(data, type=Efforts)
    except msgspec.DecodeError as error:
        raise UsageError(f"{file} is no baseline of proofs ({error}); --save-baseline writes one") from error
    if (before.solver, before.seed) != (SOLVER, seed):
        was, now = f"{before.solver} with seed {before.seed}", f"{SOLVER} with seed {seed}"
        raise UsageError(f"{file} is of {was}, this run of {now}: efforts differ; write another with --save-baseline")
    return before


def write_baseline(file: Path, decided: list[Decided], seed: int) -> None:
    """Write the efforts of a run. Raises StoreError."""
    text = json.dumps(efforts(decided, SOLVER, seed).as_data(), indent=1)
    with explained(file):
        file.write_text(text + "\n", encoding="utf-8")


def compared(before: Efforts, decided: list[Decided], is_whole: bool) -> tuple[list[str], list[str]]:
    """What is harder than the baseline says, and what else is not as it was; of a part of a run only the first."""
    now = efforts(decided, SOLVER, before.seed)
    return list(worse(before, decided)), list(changes(before, now)) if is_whole else []
