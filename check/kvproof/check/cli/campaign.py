"""`kvproof campaign`: search many subjects, releases, configurations and seeds, by many workers."""

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvproof.check.cli.options import JsonOption, WorkersOption
from kvproof.check.cli.table import lines_of
from kvproof.check.runs.errors import UsageError, error_boundary

if TYPE_CHECKING:
    from kvproof.check.hunting.campaign import CampaignResult
    from kvproof.check.hunting.plan import Plan
    from kvproof.check.runs.terminal import Output
    from kvproof.spec.verdict import Exit


def campaign(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The campaign, in TOML.")] = None,
    workers: WorkersOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder of the results, in place of that of the file.")
    ] = None,
    json: JsonOption = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the file instead, for an editor.")
    ] = False,
) -> None:
    """Search many subjects, releases, configurations and seeds with random walks, and report each finding once.

    Results are kept in the folder of the campaign as soon as they are known: the same command goes on after a kill of
    anything. By default there is one worker for each core of this machine.
    """
    with error_boundary(json):
        from dataclasses import replace

        import msgspec

        from kvproof.check.hunting.campaign import as_data
        from kvproof.check.hunting.plan import read_plan, schema_text
        from kvproof.check.hunting.store import DOCUMENT
        from kvproof.check.runs.json_output import write_document
        from kvproof.check.runs.store import explained
        from kvproof.check.runs.terminal import output
        from kvproof.reports.document import encodable, write_atomically

        if schema:
            print(schema_text(), end="")
            return
        if file is None:
            raise UsageError("no campaign is given: name its file, or print the schema of such a file with --schema")
        plan = read_plan(file)
        plan = plan if out is None else replace(plan, folder=out)
        console = output()
        result, code = _run(plan, workers or str(os.cpu_count() or 1), console)
        data = msgspec.json.format(msgspec.json.encode(encodable(as_data(result))), indent=2) + b"\n"
        with explained(plan.folder / DOCUMENT):
            write_atomically(plan.folder / DOCUMENT, data)
        _write_page(result, result.messages, code, plan.folder)
        _print(console, result)
        if json is not None:
            write_document(json, data)
        raise typer.Exit(code)


def _run(plan: "Plan", workers: str, console: "Output") -> "tuple[CampaignResult, Exit]":
    """Do what is left of the campaign, and show how far it is."""
    from kvproof.check.hosts.choice import opened
    from kvproof.check.hosts.interrupt import interruptible
    from kvproof.check.hunting.campaign import Campaign, check_fields
    from kvproof.check.hunting.campaign_display import Display
    from kvproof.check.hunting.store import ResultStore
    from kvproof.check.runs.store import StoreError
    from kvproof.check.runs.terminal import say
    from kvproof.check.subjects.loading.shipping import SHIPPING
    from kvproof.spec.verdict import Exit

    store, is_interrupted = ResultStore.of_campaign(plan.folder), False
    say(console, f"kvproof campaign, {len(plan.searches):,} searches, results in {plan.folder}")
    reasons = check_fields(plan)
    with closing(store), opened(workers, SHIPPING) as pool:
        assert pool is not None

        def page(messages: list[str]) -> None:
            with suppress(StoreError):  # the last one matters
                code = Exit.REFUTED if run.result.exit_code() is Exit.REFUTED else Exit.INCONCLUSIVE
                _write_page(run.result, messages, code, plan.folder)

        display = Display(console, page)
        run = Campaign(plan, store, pool, display.watch)
        for row in run.result.searches:
            row.reason = reasons.get(row.subject, "")
        try:
            with interruptible():
                run.run()
        except KeyboardInterrupt:
            is_interrupted = True
            run.result.messages.append("interrupted; start it again to go on")
        finally:
            display.close()
    code = run.result.exit_code()
    return run.result, Exit.INCONCLUSIVE if is_interrupted and code is not Exit.REFUTED else code


def _write_page(result: "CampaignResult", messages: list[str], code: "Exit", folder: Path) -> None:
    """Write the page of the campaign. Raises StoreError."""
    from kvproof.check.runs.store import explained
    from kvproof.reports.campaign_page import campaign_page
    from kvproof.reports.document import write_atomically
    from kvproof.reports.run_page import RUN_PAGE

    with explained(folder / RUN_PAGE):
        page = campaign_page(result.searches, result.findings, messages, code, folder)
        write_atomically(folder / RUN_PAGE, page.encode("utf-8", "backslashreplace"))


def _print(console: "Output", result: "CampaignResult") -> None:
    """The table of the searches, and the findings."""
    from kvproof.check.runs.terminal import say
    from kvproof.reports.summary import number

    head = ("subject", "configuration", "seed", "effort", "operations", "runs", "rules", "findings")
    rows: list[tuple[str, ...]] = [head]
    for one in result.searches:
        fixed = ", ".join(f"{name}={value}" for name, value in one.fixed.items()) or "–"
        num_found = sum(search.subject == one.subject for search, _ in result.findings)
        counts = (f"{one.operations:,}", f"{one.runs:,}", str(one.rules), str(num_found))
        rows.append((one.subject, fixed, str(one.seed), one.effort, *counts))
    say(console, "")
    for line in lines_of(rows):
        say(console, line)
    for subject, reason in {(one.subject, one.reason): None for one in result.searches if one.reason}:
        named = reason if reason.startswith(subject) else f"{subject}: {reason}"
        say(console, f"not searched: {named}", "yellow")
    say(console, "")
    for search, found in result.findings:
        first = found.text.partition("\n")[0]
        excuse = f" (excused: {found.excused})" if found.excused else ""
        say(console, f"{search.subject}: {found.property}: {first}{excuse}", "bold red" if not excuse else "")
        if found.trace:
            say(console, f"  Saved: {found.trace}")
    for message in result.messages:
        say(console, message, "yellow")
    num = sum(not found.excused for _, found in result.findings)
    end = "" if result.is_complete else "; not complete"
    searches = number(len(result.searches), "search", "searches")
    say(console, f"{searches}, {number(num, 'finding', 'findings')}{end}.")
