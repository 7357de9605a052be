"""What a run keeps in its folder, so that `--resume DIR` can continue it: its plan, and its results.

A run of `hunt` or of `verify` that is resumed is the same run: it does all its units again, and those whose results are
in the store take no time. So it ends as one that was never stopped. With a larger effort, it goes on where the smaller
one ended.
"""

from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from kvproof.check.hunting.store import HUNT, VERIFY, ResultStore
from kvproof.check.runs.effort import effort_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.replay import Trust, UntrustedSubject, trust
from kvproof.check.runs.store import Store, StoreError

PLAN = "plan"  # the key of the plan
OLD_FILE = "hunt.json"  # of version 0.2
RESUME = "--resume {file} --subject {subject}"


class RunPlan(msgspec.Struct, forbid_unknown_fields=True):
    """What a run searches.

    effort: as `--effort` takes it; empty if the time alone limits the run. words: the options that repeat it.
    """

    COMMAND: ClassVar[str]
    FILE: ClassVar[str]  # of the store
    WHAT: ClassVar[str]  # what a message calls the run

    subject: str
    seed: int
    effort: str = ""
    words: list[str] = []

    def words_with(self, typed: list[str]) -> list[str]:
        """The options that repeat the run when it is continued with these."""
        return self.words if typed == self.words else [*self.words, *typed]


class HuntPlan(RunPlan):
    """What a hunt searches. saved: the files with the runs of earlier hunts that are replayed first."""

    COMMAND, FILE, WHAT = "hunt", HUNT, "hunt"

    fixed: dict[str, Any] = {}
    properties: list[str] = []
    saved: list[str] = []


class VerifyPlan(RunPlan):
    """What a run of `kvproof verify` searches. judges, required: as `--judges` and `--require` take them."""

    COMMAND, FILE, WHAT = "verify", VERIFY, "run of verify"

    judges: list[str] = []
    required: list[str] = []


Plan = TypeVar("Plan", bound=RunPlan)


def begun(folder: Path, plan: RunPlan) -> ResultStore:
    """The empty store of a new run in this folder. Raises StoreError, UsageError."""
    store = ResultStore(folder / plan.FILE, is_needed=False)
    store.clear()
    keep_plan(store, plan)
    return store


def keep_plan(store: ResultStore, plan: RunPlan) -> None:
    """Write the plan of a run, in place of an earlier one."""
    store.put(PLAN, msgspec.to_builtins(plan))


def _require_run(folder: Path, kind: type[RunPlan]) -> None:
    """Raise UsageError if the folder holds no run of this kind."""
    if not (folder / kind.FILE).exists():
        if kind is HuntPlan and (folder / OLD_FILE).exists():
            raise UsageError(
                f"{folder} holds a hunt of an earlier version of kvproof ({OLD_FILE}), which is not "
                "continued; begin the hunt again, with its --subject and --seed"
            )
        raise UsageError(f"{folder} holds no {kind.WHAT} that can be resumed: it has no {kind.FILE}")


def resumed(folder: Path, kind: type[Plan]) -> tuple[ResultStore, Plan]:
    """The store and the plan of the run in this folder. Raises UsageError if there is none."""
    _require_run(folder, kind)
    store = ResultStore(folder / kind.FILE, is_needed=False)
    try:
        store.check()
        return store, msgspec.convert(store.find(PLAN), kind)
    except (msgspec.ValidationError, StoreError) as error:
        store.close()
        raise UsageError(f"the {kind.WHAT} in {folder} cannot be resumed: {error}") from error


def continued(
    claimed: Store,
    kind: type[Plan],
    subject: str | None,
    seed: int | None,
    effort: str | None,
    budget: float | None,
    is_trusted: bool = False,
) -> tuple[ResultStore, Plan]:
    """As `resumed`, of a command with these options; an effort that it has is from now on that of the plan.

    claimed: the folder, which is kept from other runs before anything in it is changed. Raises StoreError.
    """
    _require_run(folder := claimed.folder, kind)
    claimed.claim()
    store, plan = resumed(folder, kind)
    try:
        _require_same(
            folder, plan, subject, seed, trust(is_total=is_trusted, command=f"kvproof {kind.COMMAND} {RESUME}")
        )
        plan.effort = effort_of(effort or plan.effort or None, budget, plan.subject).name
        keep_plan(store, plan)
    except BaseException:
        store.close()
        raise
    return store, plan


def _require_same(folder: Path, plan: RunPlan, subject: str | None, seed: int | None, trusted: Trust) -> None:
    """Raise UsageError if the command asks for another run, or the plan names code that is not trusted."""
    for name, given, kept in (("subject", subject, plan.subject), ("seed", seed, plan.seed)):
        if given is not None and given != kept:
            raise UsageError(
                f"the {plan.WHAT} in {folder} has {name} {kept}; leave --{name} out, or begin another {plan.WHAT}"
            )
    if subject is None:
        try:
            trusted.subject_of(folder, plan.subject)
        except UntrustedSubject as error:
            raise UsageError(str(error)) from error
