"""Both states are hunted, one after the other, each by `kvproof hunt` in a process of its own; the first may be kept.

What was hunted before with the same options, kvproof and installed packages is not hunted again: a commit does not
change. The working tree may, so it is always hunted.
"""

import hashlib
import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from kvproof.check.counterexample.replay import ReplayStatus
from kvproof.check.hosts.git import NAME_CHARACTERS
from kvproof.check.hosts.program import how_it_ended
from kvproof.check.hosts.workers import code_digest
from kvproof.check.hunting.gate.changes import lines_changed
from kvproof.check.hunting.gate.running import hunt, last_words, replayed
from kvproof.check.hunting.gate.sides import Hunted, Side, hunted, repository, side_of
from kvproof.check.runs.errors import UsageError, fail
from kvproof.check.runs.store import CRASHES, RESULT, explained
from kvproof.check.runs.terminal import output, say
from kvproof.check.subjects.content import installed
from kvproof.reports.baseline import findings, is_known, read_baseline
from kvproof.reports.document import DocumentError, encode, read, write_atomically
from kvproof.reports.gate_comment import LEFT, OPEN, REPAIRED, Change, comment, lines
from kvproof.reports.identity import Identity
from kvproof.reports.result import Check, Result
from kvproof.reports.summary import number
from kvproof.spec.verdict import Exit

WORKING_TREE = "the working tree"
COMMENT, SAID, BASELINE = "gate.md", "hunt.txt", "baseline.json"
ROUNDS_MAX = 4  # hunts of the state after the change, each without what the one before showed to be older
LOOKED = (Exit.OK, Exit.REFUTED, Exit.INCONCLUSIVE, Exit.WORSE_THAN_BASELINE)  # of a hunt that looked at the subject


@dataclass
class GateOptions:
    """The options of `kvproof gate`. words: further options of both hunts, such as `--fix window=4`."""

    subject: str
    base: str
    head: str | None
    like: str | None
    seed: int
    effort: str
    out: Path
    words: list[str] = field(default_factory=list)


def gate(given: GateOptions) -> Exit:
    """Hunt both states, and say what the change adds, repairs and leaves. Raises UsageError, StoreError."""
    repo, console = repository(), output()
    with explained(given.out):
        given.out.mkdir(parents=True, exist_ok=True)
        out = given.out.resolve()
    trees, links = out / "trees", out / "links"
    for old in (trees, links):
        shutil.rmtree(old, ignore_errors=True)
    base = side_of(repo, given.base, trees / "base")
    whole = Side(WORKING_TREE, repo.root, is_copy=False)
    commit = repo.commit(given.base)
    head = whole if given.head is None else side_of(repo, given.head, trees / "head", since=commit)
    kept = kept_in(out, commit, given)
    how, then = (hunted(repo, one, given.subject, given.like, links / n) for one, n in ((base, "base"), (head, "head")))
    code, change = compared(base, how, head, then, given, kept)
    with explained(out / COMMENT):
        write_atomically(out / COMMENT, comment(change, given.out / "head").encode("utf-8", "backslashreplace"))
    shutil.rmtree(base.tree, ignore_errors=True)
    say(console, f"The comment for the pull request: {out / COMMENT}")
    return code


def compared(base: Side, how: Hunted, head: Side, then: Hunted, given: GateOptions, kept: Path) -> tuple[Exit, Change]:
    """Hunt both sides, and print and return what the second adds, repairs and leaves. Raises UsageError, StoreError.

    how, then: the first and the second are hunted. kept: the folder in which the result of the first is kept.
    """
    console, out = output(), given.out.resolve()
    before = kept_result(kept)
    if before is None:
        say(console, f"{base.name} is hunted; what is printed goes to {kept / SAID}")
        before = _base_of(base, how, given, kept)
    else:
        say(console, f"{base.name} was hunted before; its result is in {kept}")
    say(console, f"{base.name}: {number(len(findings(before)), 'finding', 'findings')}. {head.name} is hunted.")
    for _ in range(ROUNDS_MAX):
        code, now = _head_of(head, then, given, before, out)
        if not (older := _older(now, how, out)):
            break
        say(console, f"{base.name} has {', '.join(one.property for one in older)} too; {head.name} is hunted again.")
        before = replace(before, checks=[*before.checks, *older])
    else:
        raise fail(f"each of {ROUNDS_MAX} hunts met further findings that {base.name} has too", Exit.INCONCLUSIVE)
    fates, changed = _fates(before, now, then, kept), lines_changed(base.tree, head.tree)
    change = Change(given.subject, base.name, head.name, _words(given), now, fates, changed)
    for line, style in lines(change):
        say(console, line, style)
    return code, change


def _words(given: GateOptions) -> list[str]:
    return ["--seed", str(given.seed), "--effort", given.effort, *given.words]


def kept_in(out: Path, commit: str, given: GateOptions) -> Path:
    """The folder in which the result of the base is kept: its name has all that the result depends on."""
    what = [commit, given.subject, given.like or "", os.getcwd(), _words(given), code_digest(), installed()]
    return out / "bases" / f"{commit[:NAME_CHARACTERS]}-{hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:12]}"


def kept_result(folder: Path) -> Result | None:
    """The result that is kept in a folder; None if there is none that finished."""
    try:
        return read_baseline(folder / RESULT)
    except DocumentError:
        return None


def _base_of(side: Side, how: Hunted, given: GateOptions, folder: Path) -> Result:
    """Hunt the base. Raises UsageError if that says nothing of the subject."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    code = hunt(how, [*_words(given), "--out", str(folder)], folder / SAID)
    if code not in LOOKED:
        raise UsageError(f"the hunt of {side.name} {how_it_ended(code)}: {last_words(folder / SAID)}")
    try:
        return read_baseline(folder / RESULT)
    except DocumentError as error:
        raise UsageError(f"the hunt of {side.name} did not finish: {error}") from error


def _head_of(side: Side, how: Hunted, given: GateOptions, before: Result, out: Path) -> tuple[Exit, Result]:
    """Hunt the state after the change, with the result of the base as its baseline."""
    head = out / "head"
    shutil.rmtree(head, ignore_errors=True)
    with explained(out / BASELINE):
        write_atomically(out / BASELINE, encode(before))
    named = [str(one) if side.is_copy else os.path.relpath(one, how.folder) for one in (out / BASELINE, head)]
    code = hunt(how, [*_words(given), "--baseline", named[0], "--out", named[1]], None)
    if code not in LOOKED:
        raise UsageError(f"the hunt of {side.name} {how_it_ended(code)}")
    return Exit(code), read(head / RESULT, Result)


def _older(now: Result, how: Hunted, out: Path) -> list[Check]:
    """The new findings that the base has too: there, their runs refute the same property.

    The second hunt may draw other runs than the first, because the subject answers otherwise.
    """
    new = [one for one in now.checks if one.is_failure and one.trace is not None]
    traces = [out / "head" / CRASHES / Path(one.trace or "").name for one in new]
    done = replayed(how, traces, out)
    return [one for one, again in zip(new, done, strict=True) if again.property == one.property]


def _fates(before: Result, now: Result, how: Hunted, kept: Path) -> dict[str, list[str]]:
    """The findings of the base, by what became of each.

    What the second hunt did not meet may be hidden by what it met. So the saved run of it decides: it is repaired if
    the run is possible and refutes nothing, and left if it refutes the same property.
    """
    fates: dict[str, list[str]] = {REPAIRED: [], LEFT: [], OPEN: []}
    gone = dict[Identity, Path]()
    for known, check in findings(before).items():
        if any(is_known(one, [known]) for one in findings(now)):
            fates[LEFT].append(f"{known.property}: {known.signature}")
        elif check.trace is None:
            fates[OPEN].append(f"{known.property}: {known.signature}")
        else:
            gone[known] = kept / CRASHES / Path(check.trace).name
    for known, done in zip(gone, replayed(how, list(gone.values()), kept), strict=True):
        is_left = done.property == known.property
        fate = REPAIRED if done.status == str(ReplayStatus.FIXED) else LEFT if is_left else OPEN
        fates[fate].append(f"{known.property}: {known.signature}")
    return fates
