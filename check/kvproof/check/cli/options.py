"""Options that several commands share. Every option that is a number has a least and a largest value."""

import math
import os
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from kvproof.check.cli.config import place_in
from kvproof.check.cli.own_process import run_apart_without_isolation
from kvproof.check.hosts.choice import NUM_PROCESSES_MAX, RAY, RAY_CLIENT, is_valid
from kvproof.check.runs.errors import UsageError, fail
from kvproof.check.runs.number_limits import BUDGET_SECONDS_MAX, BUDGET_SECONDS_MIN, SEED_MAX
from kvproof.spec.verdict import Exit

DEFAULT_FOLDER = Path(".kvproof")
DRAWN_SEED_MAX = 2**32 - 1  # short enough to type


def seconds_option(name: str, text: str, least: float = BUDGET_SECONDS_MIN, most: float = BUDGET_SECONDS_MAX) -> Any:
    """An option that is a number of seconds."""
    return typer.Option(name, metavar="SECONDS", min=least, max=most, callback=_number, help=text)


def _number(value: float | None) -> float | None:
    """The value of an option. Raises BadParameter for nan, which is in every range."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter(f"{value} is not a number of seconds.")
    return value


def jobs_option(text: str) -> Any:
    """The option --jobs, a number of processes."""
    return typer.Option("--jobs", metavar="N", min=1, max=256, help=text)


def _workers(value: str | None) -> str | None:
    """The value of --workers. Raises BadParameter."""
    if value is not None and not is_valid(value):
        raise typer.BadParameter(
            f"it is {value!r}; name a number of processes, 1 to {NUM_PROCESSES_MAX}, {RAY}, or {RAY_CLIENT}HOST:PORT."
        )
    return value


def _folder(context: typer.Context, value: Path) -> Path:
    """The value of --out. Raises Exit if it is a file."""
    if os.path.isfile(value):  # no error if the name is too long: the command reports that
        where = place_in(context)("out")
        text = f"--out takes a folder, and {value} is a file; name another path"
        raise fail(f"{where}: {text}" if where else text, Exit.USAGE)
    return value


def _key(value: str | None) -> str | None:
    """The value of --digest-key. Raises BadParameter for an empty one: tokens would be stored as they are."""
    if value == "":
        raise typer.BadParameter("it is empty, so tokens would be stored as they are.")
    return value


def workers_option(text: str, *others: str) -> Any:
    """The option --workers. others: other names of it."""
    return typer.Option("--workers", *others, metavar="N|ray|ray://HOST:PORT", callback=_workers, help=text)


WorkersOption = Annotated[
    str | None,
    workers_option(
        "Let so many processes of this machine, or a Ray cluster (ray starts one here), do the searches in units. "
        "The result does not depend on which of them, nor on whether there are any.",
    ),
]
SubjectOption = Annotated[
    str, typer.Option("--subject", metavar="S", help="A name of `kvproof subjects`, or module:factory of your own.")
]
LikeOption = Annotated[
    str | None,
    typer.Option(
        "--like",
        metavar="RELEASE",
        help="Drive a checkout (--subject NAME==PATH) as this release, which it is like, and not as the one that it "
        "says it is.",
    ),
]
BudgetOption = Annotated[
    float | None,
    seconds_option(
        "--budget",
        "Time limit for all judges together; a run that it stops says so. Without --effort, the run does as much as "
        "fits into this time.",
    ),
]
EffortOption = Annotated[
    str | None,
    typer.Option(
        "--effort",
        metavar="quick|normal|long|N",
        help="How much the searches do: the random walk does 50,000, 500,000 or 5,000,000 operations, or N; the other "
        "judges do more or less with it. With the seed, it decides the result, on every machine. Default: normal, "
        "unless --budget is given.",
    ),
]
JudgesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--judges",
        metavar="NAMES",
        help="Judges to run, with commas between them: prover, specification, explorer, data-plane, walker (loop, "
        "pool), hypothesis. Default: all; prover and specification only for kvproof's own subjects, because they do "
        "not look at the subject and the release has the record of what they proved.",
    ),
]
RequireOption = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="NAMES",
        help="Judges that must check something, with commas between them, for example prover,data-plane. They run "
        "whatever --judges says; if one of them checks nothing, for example because it needs an extra that is not "
        "installed, the exit code is 5.",
    ),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        metavar="FILE",
        help="An earlier result (see `kvproof baseline accept`). Its findings are no failure; a new finding, lost "
        "coverage, a weaker verdict or less work with the same effort is exit code 6.",
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=SEED_MAX,
        help="Seed of the run; drawn at random and printed by default. The same seed repeats the run.",
    ),
]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        callback=_folder,
        help="Folder for the result, the reports (text, page, Markdown, JUnit, SARIF) and the counterexamples, each "
        "with an HTML page and a regression test.",
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Also write the result document to this file; - means standard output."
    ),
]
HistoryOption = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help="Add the run to this file, which `kvproof history` shows; it is made if it does not exist. Default: the "
        "file that `history` in kvproof.toml names.",
    ),
]
ResumeOption = Annotated[
    Path | None, typer.Option("--resume", metavar="DIR", help="Continue the run whose --out folder this is.")
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run the subject that the file names even if it is code: a command, a module, a Python file or a "
        "checkout. By default a file names only subjects of `kvproof subjects`.",
    ),
]
KnownOption = Annotated[
    Path | None,
    typer.Option(
        "--known",
        metavar="FILE",
        help="File with known findings; by default the configuration that `kvproof config` names.",
    ),
]
ContractOption = Annotated[
    bool,
    typer.Option("--contract-fails", help="Let a call outside the engine's documented contract fail the run, too."),
]
DigestKeyOption = Annotated[
    str | None,
    typer.Option(
        "--digest-key",
        metavar="KEY",
        envvar="KVPROOF_DIGEST_KEY",
        callback=_key,
        help="Store tokens as keyed digests.",
    ),
]
IsolationOption = Annotated[
    bool | None,
    typer.Option(
        "--isolation/--no-isolation",
        callback=run_apart_without_isolation,
        help="Run the subject in a process of its own, with limits on time and memory. "
        "By default every subject but kvproof's own is isolated.",
        show_default=False,
    ),
]


def settled_seed(seed: int | None) -> int:
    """The given seed, or a random one."""
    return secrets.randbelow(DRAWN_SEED_MAX + 1) if seed is None else seed


def of_checkout(subject: str | None, like: str | None) -> str | None:
    """The subject, with the release as which its checkout is driven. Raises UsageError."""
    if like is None:
        return subject
    if subject is None:
        raise UsageError(f"--like {like} is about the checkout that --subject NAME==PATH names; there is none")
    from kvproof.check.subjects import UnknownSubject
    from kvproof.check.subjects.registry import as_release

    try:
        return as_release(subject, like)
    except UnknownSubject as error:
        raise UsageError(str(error)) from error
