"""`kvproof explore`: every reachable state of one scope."""

from typing import Annotated

import typer

from kvproof.check.cli.options import (
    DEFAULT_FOLDER,
    ContractOption,
    IsolationOption,
    JsonOption,
    KnownOption,
    OutOption,
)
from kvproof.check.runs.errors import UsageError, error_boundary


def explore(
    blocks: Annotated[int | None, typer.Option("--blocks", metavar="N", min=1, max=64, help="GPU blocks.")] = None,
    seqs: Annotated[int | None, typer.Option("--seqs", metavar="S", min=1, max=16, help="Sequences.")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", metavar="T", min=1, max=256, help="Tokens each.")] = None,
    scope: Annotated[
        str, typer.Option("--scope", metavar="NAME", help="The named scope that the sizes replace.")
    ] = "tables-4x3x6",
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="S", help="Explore it in lockstep; else the specification itself."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="SECONDS", min=0.1, help="No limit if left out.")
    ] = None,
    isolation: IsolationOption = None,
    known: KnownOption = None,
    contract_fails: ContractOption = False,
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Reach every state of one scope, of the specification or of a subject. Nothing is drawn: no seed is needed."""
    with error_boundary(json):
        from dataclasses import replace

        from kvproof.check.protocol.scopes import SCOPES
        from kvproof.check.runs.explore_stage import specification_stage, subject_stage
        from kvproof.check.runs.run import Request, run_stages
        from kvproof.check.runs.subject_lookup import did_you_mean, factory_of

        if scope not in SCOPES:
            raise UsageError(f"there is no scope {scope}{did_you_mean(scope, list(SCOPES))}; {', '.join(SCOPES)}")
        given = {"blocks": blocks, "seqs": seqs, "tokens": tokens}
        name = "-".join([scope, *(f"{option}-{value}" for option, value in given.items() if value is not None)])
        whole = SCOPES[scope]
        scopes = {
            name: replace(
                whole,
                num_gpu_blocks=blocks or whole.num_gpu_blocks,
                num_seqs=seqs or whole.num_seqs,
                num_tokens=tokens or whole.num_tokens,
            )
        }
        if subject is None:
            request = Request("explore", "the specification", 0, budget, out, json)
            raise typer.Exit(run_stages(request, [specification_stage(scopes, 1, is_whole=False)], None))
        make, one = factory_of(subject, isolation, budget)
        request = Request("explore", subject, 0, budget, out, json, known, contract_fails)
        raise typer.Exit(run_stages(request, [subject_stage(make, one, scopes, request.saving(make), 1)], one))
