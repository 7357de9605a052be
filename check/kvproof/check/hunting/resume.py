"""What a hunt keeps in its folder, so that `kvproof hunt --resume DIR` can continue it: its plan, and its results.

A hunt that is resumed is the same hunt: it does all its units again, and those whose results are in the store take no
time. So it ends as one that was never stopped. With a larger effort, it goes on where the smaller one ended.
"""

from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.hunting.store import HUNT, ResultStore
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import StoreError
from kvproof.check.runs.trust import Trust, UntrustedSubject

PLAN = "plan"  # the key of the plan
OLD_FILE = "hunt.json"  # of version 0.2
MANY = "the hunt in {folder} has {name} {kept}; leave --{name} out, or begin another hunt"


class HuntPlan(msgspec.Struct, forbid_unknown_fields=True):
    """What a hunt searches.

    effort: as `--effort` takes it; empty if the time alone limits the hunt. saved: the files with the runs of earlier
    hunts that are replayed first.
    """

    subject: str
    seed: int
    fixed: dict[str, Any] = {}
    properties: list[str] = []
    effort: str = ""
    saved: list[str] = []


def begun(folder: Path, plan: HuntPlan) -> ResultStore:
    """The empty store of a new hunt in this folder. Raises StoreError, UsageError."""
    store = ResultStore(folder / HUNT, is_needed=False)
    store.clear()
    keep_plan(store, plan)
    return store


def keep_plan(store: ResultStore, plan: HuntPlan) -> None:
    """Write the plan of a hunt, in place of an earlier one."""
    store.put(PLAN, msgspec.to_builtins(plan))


def resumed(folder: Path) -> tuple[ResultStore, HuntPlan]:
    """The store and the plan of the hunt in this folder. Raises UsageError if there is none."""
    if not (folder / HUNT).exists():
        if (folder / OLD_FILE).exists():
            raise UsageError(
                f"{folder} holds a hunt of an earlier version of kvproof ({OLD_FILE}), which is not "
                "continued; begin the hunt again, with its --subject and --seed"
            )
        raise UsageError(f"{folder} holds no hunt that can be resumed: it has no {HUNT}")
    store = ResultStore(folder / HUNT, is_needed=False)
    try:
        store.check()
        return store, msgspec.convert(store.find(PLAN), HuntPlan)
    except (msgspec.ValidationError, StoreError) as error:
        store.close()
        raise UsageError(f"the hunt in {folder} cannot be resumed: {error}") from error


def require_same(folder: Path, plan: HuntPlan, subject: str | None, seed: int | None, trusted: Trust) -> None:
    """Raise UsageError if the command asks for another hunt, or the plan names code that is not trusted."""
    for name, given, kept in (("subject", subject, plan.subject), ("seed", seed, plan.seed)):
        if given is not None and given != kept:
            raise UsageError(MANY.format(folder=folder, name=name, kept=kept))
    if subject is None:
        try:
            trusted.subject_of(folder, plan.subject)
        except UntrustedSubject as error:
            raise UsageError(str(error)) from error
