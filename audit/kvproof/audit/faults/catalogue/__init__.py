"""The catalogue of faults, as tables of TOML. The heads of the files say what their entries are.

`managers/`, a file for each subject: faults of block managers, which the searches of `kvproof verify` judge. A file
names its subject. Every table of it is a function of a file, and every entry a fault: its kind, the text that is
replaced, the new text, and what is wrong in a sentence. A fault that is not found has a fifth text: `equivalent: ` and
why no caller can notice it, or `blind spot: ` and the name of a row of `docs/blind-spots.md`.

`fresh/`, in the same form: faults that were written from the code of the subjects alone, without regard to what the
searches look at. What is found of them at the first run says how good the searches are. So an entry does not change
any more, but for the reason why it is not found. Its sentence also says what a user notices, and "Needs ... and ..."
if the fault needs two features together.

`second/`, in the same form: a second list of this kind, which was written later. `shipped/`, in the same form: a list
in what vLLM V1 does as it is shipped: retention, states, failed transfers, drafts, images, sessions, events.

`walks/`, a file for each subject: faults that a walk of the tests finds within a number of operations, and makes short.

`by_hand.toml`, `machinery.toml`, `code.toml`: faults of the specification's text, of what proves it, and of the code of
`impl/` that is proved. `mutation` makes further faults of the text.
"""

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from kvproof.audit.faults.edits import Edit, Fault

EQUIVALENT, BLIND_SPOT = "equivalent: ", "blind spot: "
HANDMADE, MACHINERY, CODE = "by hand", "machinery", "code"
SPECIFICATION = "specification"  # the suite of the block managers' text
PROVER, EXPLORER, PIN, CROSS_CHECK = "prover", "explorer", "pin", "cross-check"
FOLDER, IMPL = Path(__file__).parent, "impl/kvproof/impl/"


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def catalogue() -> tuple[Fault, ...]:
    """The faults of managers, by file and in their order. Raises ValueError for an entry of another form."""
    return _faults_of("managers")


@cache
def fresh() -> tuple[Fault, ...]:
    """The faults of subjects that nobody looked for beforehand, by file and in their order. Raises as `catalogue`."""
    return _faults_of("fresh")


@cache
def second() -> tuple[Fault, ...]:
    """The second list of such faults, by file and in their order. Raises as `catalogue`."""
    return _faults_of("second")


@cache
def shipped() -> tuple[Fault, ...]:
    """The list in what vLLM V1 does as it is shipped, by file and in their order. Raises as `catalogue`."""
    return _faults_of("shipped")


def _faults_of(folder: str) -> tuple[Fault, ...]:
    return tuple(fault for file in sorted((FOLDER / folder).glob("*.toml")) for fault in _faults_in(file))


def _faults_in(path: Path) -> Iterator[Fault]:
    document = _read(path)
    subject, folder = document.pop("subject"), document.pop("folder", "")
    for file, functions in document.items():
        for function, entries in functions.items():
            for name, (kind, old, new, sentence, *survives) in entries.items():
                row, reason = subject.partition("==")[0], "".join(survives)
                if reason and not reason.startswith((EQUIVALENT, BLIND_SPOT)):
                    raise ValueError(
                        f"{subject}/{name}: a fault survives as {EQUIVALENT!r} or {BLIND_SPOT!r}, not as {reason!r}"
                    )
                yield Fault(
                    f"{row}/{name}",
                    (Edit(function, old, new, (folder if "==" in subject else IMPL) + file),),
                    subject,
                    kind,
                    row,
                    sentence,
                    equivalent=reason.removeprefix(EQUIVALENT) if reason.startswith(EQUIVALENT) else "",
                    blind_spot=reason.removeprefix(BLIND_SPOT) if reason.startswith(BLIND_SPOT) else "",
                )


@cache
def found_by_walks(name: str) -> tuple[Fault, ...]:
    """The faults of one file of `walks/`. Its tables are those of a manager's file.

    An entry has the old text, the new one, the properties of which one must be refuted, and perhaps settings of the
    walk that finds it soon: the seed, a configuration beside that of the file, and how many steps the shortest run has,
    if that is not what the file says.
    """
    document = _read(FOLDER / "walks" / f"{name}.toml")
    subject, longest, config = document.pop("subject"), document.pop("steps"), document.pop("config", {})
    return tuple(
        _found_by_walk(fault, Edit(function, old, new, file), subject, properties, longest, config, *more)
        for file, functions in document.items()
        for function, entries in functions.items()
        for fault, (old, new, properties, *more) in entries.items()
    )


def _found_by_walk(
    name: str,
    edit: Edit,
    subject: str,
    properties: list[str],
    longest: int,
    config: dict[str, Any],
    more: dict[str, Any] | None = None,
) -> Fault:
    own = more or {}
    fixed = {key: _value(one) for key, one in (config | own.get("config", {})).items()}
    settings = {"seed": own.get("seed", 0), "config": fixed}
    steps = own.get("steps", longest)
    return Fault(
        f"{subject}/{name}", (edit,), subject, found_by=tuple(properties), num_steps_max=steps, settings=settings
    )


def _value(written: Any) -> Any:
    """A value of a configuration: TOML has neither tuples nor None."""
    return tuple(written) if isinstance(written, list) else None if written == "none" else written


@cache
def by_hand() -> tuple[Fault, ...]:
    """The changes of the specification's text that were written by hand."""
    return tuple(
        Fault(
            f"{HANDMADE}/{name}",
            tuple(Edit(*edit) for edit in edits),
            SPECIFICATION,
            HANDMADE,
            HANDMADE,
            found_by=(PROVER, EXPLORER, PIN),
        )
        for name, edits in _read(FOLDER / "by_hand.toml").items()
    )


@cache
def machinery() -> tuple[Fault, ...]:
    """The faults of what proves."""
    return tuple(
        Fault(
            f"{MACHINERY}/{name}",
            (Edit("", old, new, file),),
            who.removeprefix(f"{PIN} of ") if who.startswith(PIN) else SPECIFICATION,
            MACHINERY,
            MACHINERY,
            found_by=(CROSS_CHECK, PIN) if who == CROSS_CHECK else (PIN,) if who.startswith(PIN) else (who,),
        )
        for file, by_finder in _read(FOLDER / "machinery.toml").items()
        for who, entries in by_finder.items()
        for name, (old, new) in entries.items()
    )


@cache
def code_faults() -> tuple[Fault, ...]:
    """The faults of proved code. One that no run of the manager can show has the reason as its third text."""
    return tuple(
        Fault(
            f"{CODE}/{file.removesuffix('.py')}.{method.rpartition('.')[2]}: {name}",
            (Edit(method if "." in method else "", old, new, IMPL + file),),
            kind=CODE,
            row=CODE,
            found_by=(PROVER,),
            equivalent="".join(reason),
        )
        for file, by_method in _read(FOLDER / "code.toml").items()
        for method, entries in by_method.items()
        for name, (old, new, *reason) in entries.items()
    )
