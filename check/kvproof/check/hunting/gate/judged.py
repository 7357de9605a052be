"""Both states are hunted, one after the other, each by `kvproof hunt` in a process of its own; the first may be kept.

What was hunted before with the same options, kvproof and installed packages is not hunted again: a commit does not
change. The working tree may, so it is always hunted.
"""

import hashlib
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from kvproof.check.counterexample.replay import ReplayStatus
from kvproof.check.hosts.program import SAME, Streams, how_it_ended, module, started
from kvproof.check.hosts.supervised_command import signals_passed_on
from kvproof.check.hosts.workers import code_digest
from kvproof.check.hunting.gate.replayed import Replayed
from kvproof.check.hunting.gate.sides import NAME_CHARACTERS, Hunted, Side, hunted, repository, side_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import CRASHES, RESULT, explained
from kvproof.check.runs.terminal import output, say
from kvproof.reports.baseline import findings, is_known, read_baseline
from kvproof.reports.document import DocumentError, read, write_atomically
from kvproof.reports.gate_comment import LEFT, OPEN, REPAIRED, Change, comment, lines
from kvproof.reports.identity import Identity
from kvproof.reports.result import Result
from kvproof.reports.summary import number
from kvproof.spec.verdict import Exit

KVPROOF = "kvproof.check.cli.app"
WORKING_TREE = "the working tree"
REPLAY = "kvproof.check.hunting.gate.replayed"
COMMENT, SAID, SAID_AGAIN, REPLAYED = "gate.md", "hunt.txt", "replay.txt", "replayed.json"
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
    head = whole if given.head is None else side_of(repo, given.head, trees / "head")
    kept = out / "bases" / _key(repo.commit(given.base), given)
    how = hunted(repo, base, given.subject, given.like, links / "base")
    before = _kept(kept)
    if before is None:
        say(console, f"{base.name} is hunted; what is printed goes to {kept / SAID}")
        before = _base_of(base, how, given, kept)
    else:
        say(console, f"{base.name} was hunted before; its result is in {kept}")
    say(console, f"{base.name}: {number(len(findings(before)), 'finding', 'findings')}. {head.name} is hunted.")
    how = hunted(repo, head, given.subject, given.like, links / "head")
    code, now = _head_of(head, how, given, kept, out / "head")
    change = Change(given.subject, base.name, head.name, _words(given), now, _fates(before, now, how, kept))
    for line, style in lines(change):
        say(console, line, style)
    with explained(out / COMMENT):
        write_atomically(out / COMMENT, comment(change, out / "head").encode("utf-8", "backslashreplace"))
    shutil.rmtree(base.tree, ignore_errors=True)
    say(console, f"The comment for the pull request: {out / COMMENT}")
    return code


def _words(given: GateOptions) -> list[str]:
    return ["--seed", str(given.seed), "--effort", given.effort, *given.words]


def _key(commit: str, given: GateOptions) -> str:
    """The name of the folder in which the result of the base is kept: all that it depends on."""
    packages = sorted(f"{one.metadata['Name']} {one.version}" for one in distributions())
    what = [commit, given.subject, given.like or "", os.getcwd(), _words(given), code_digest(), packages]
    return f"{commit[:NAME_CHARACTERS]}-{hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:12]}"


def _kept(folder: Path) -> Result | None:
    """The result that is kept in a folder; None if there is none that finished."""
    try:
        return read_baseline(folder / RESULT)
    except DocumentError:
        return None


def _base_of(side: Side, how: Hunted, given: GateOptions, folder: Path) -> Result:
    """Hunt the base. Raises UsageError if that says nothing of the subject."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    code = _hunt(how, [*_words(given), "--out", str(folder)], folder / SAID)
    if code not in LOOKED:
        raise UsageError(f"the hunt of {side.name} {how_it_ended(code)}: {_last_words(folder / SAID)}")
    try:
        return read_baseline(folder / RESULT)
    except DocumentError as error:
        raise UsageError(f"the hunt of {side.name} did not finish: {error}") from error


def _head_of(side: Side, how: Hunted, given: GateOptions, kept: Path, out: Path) -> tuple[Exit, Result]:
    """Hunt the state after the change, with the result of the base as its baseline."""
    shutil.rmtree(out, ignore_errors=True)
    named = [str(one) if side.is_copy else os.path.relpath(one, how.folder) for one in (kept / RESULT, out)]
    code = _hunt(how, [*_words(given), "--baseline", named[0], "--out", named[1]], None)
    if code not in LOOKED:
        raise UsageError(f"the hunt of {side.name} {how_it_ended(code)}")
    return Exit(code), read(out / RESULT, Result)


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
    for known, done in zip(gone, _replayed(how, list(gone.values()), kept), strict=True):
        is_left = done.property == known.property
        fate = REPAIRED if done.status == str(ReplayStatus.FIXED) else LEFT if is_left else OPEN
        fates[fate].append(f"{known.property}: {known.signature}")
    return fates


def _replayed(how: Hunted, traces: list[Path], kept: Path) -> list[Replayed]:
    """What became of each run. Raises UsageError."""
    if not traces:
        return []
    out = kept / REPLAYED
    code = _run(how, REPLAY, [str(out), how.subject, *map(str, traces)], kept / SAID_AGAIN)
    if code:
        raise UsageError(
            f"the replay of the findings of the base {how_it_ended(code)}: {_last_words(kept / SAID_AGAIN)}"
        )
    return msgspec.json.decode(out.read_bytes(), type=list[Replayed])


def _hunt(how: Hunted, words: list[str], said: Path | None) -> int:
    """The exit code of a hunt. said: the file to which its output goes; None for that of this process."""
    return _run(how, KVPROOF, ["hunt", "--subject", how.subject, *words], said)


def _run(how: Hunted, name: str, words: list[str], said: Path | None) -> int:
    """The exit code of a module of kvproof that runs where a side is."""
    environment, command = {**os.environ, "PYTHONPATH": how.path}, module(name, *words)
    with ExitStack() as ending:
        streams: Streams = (SAME, SAME, SAME)
        if said is not None:
            file = ending.enter_context(said.open("wb")).fileno()
            streams = SAME, file, file
        process = started(command, streams, environment=environment, is_in_own_session=True, folder=how.folder)
        with signals_passed_on(lambda: process.pid) as signals:
            code = process.wait()
    if signals:
        raise KeyboardInterrupt
    return code


def _last_words(file: Path) -> str:
    text = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return text[-1] if text else "it printed nothing"
