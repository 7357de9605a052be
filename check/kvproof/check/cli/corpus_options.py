"""Options that the commands of `kvproof corpus` share, and the records that they select."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.shipped_examples import source_folder

if TYPE_CHECKING:
    from kvproof.check.hunting.corpus.record import FaultRecord

RECORDS = "corpus"
FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="Take the records, the saved runs and the scripts of this folder (corpus, traces, reproductions), and not "
        "those that come with kvproof.",
    ),
]
EngineOption = Annotated[str | None, typer.Option("--engine", metavar="E", help="Only records of this engine.")]
ClassOption = Annotated[str | None, typer.Option("--class", metavar="C", help="Only records of this class.")]
IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Only these records.")]


def records(
    folder: Path | None, ids: list[str] | None = None, engine: str | None = None, fault_class: str | None = None
) -> "tuple[list[FaultRecord], Path]":
    """The selected records, and the folder of the files that they name. Raises UsageError, DocumentError."""
    from kvproof.check.hunting.corpus.record import read_all, selected

    examples = folder or source_folder()
    found = selected(read_all(examples / RECORDS), ids or [], engine, fault_class)
    if not found:
        raise UsageError("no record has both this engine and this class; `kvproof corpus list` lists all")
    return found, examples
