"""A record as text: for people who look it up, and for the tracker of the engine."""

from pathlib import Path

from kvproof.check.hunting.corpus.record import FaultRecord
from kvproof.check.hunting.corpus.validation import script_of


def as_text(fault: FaultRecord) -> str:
    """Everything that the record says, for a terminal."""
    name = f"{fault.id} ({fault.alias})" if fault.alias else fault.id
    rows = {
        "engine": fault.engine,
        "class": fault.fault_class,
        "harm": fault.harm,
        "place": fault.place,
        "shown in": ", ".join(fault.bad),
        "not in": ", ".join(fault.good) or "no release that was run",
        "state": ", ".join([fault.state, *fault.links]),
        "found by": fault.found_by,
        "property": fault.property_id or "none of kvproof's",
        "subject": fault.subject or "no built-in subject drives it",
        "saved run": fault.trace or "none",
        "script": fault.script or "none",
        "missed": "" if fault.missed is None else f"{fault.missed.cause}: {fault.missed.text}",
    }
    lines = [f"  {title + ':':<10} {text}" for title, text in rows.items() if text]
    return "\n".join([name, fault.mechanism, "", *lines, "", fault.story.strip(), ""])


def issue(fault: FaultRecord, examples: Path) -> str:
    """The text of an issue, in Markdown: title, versions, reproduction, expected, observed, cause, suggestion."""
    assert fault.report is not None
    report, script = fault.report, script_of(fault, examples)
    versions = f"Seen by a run in {', '.join(fault.bad)}." + (
        f" Not seen in {', '.join(fault.good)}." if fault.good else ""
    )
    parts = [f"# {report.title}", f"## Versions\n\n{versions} The code is in `{fault.place}`."]
    if script is not None:
        files = [*_shared(script), script]
        blocks = [f"`{path.name}`:\n\n```python\n{path.read_text(encoding='utf-8').strip()}\n```" for path in files]
        how = f"`python {script.name}` with the engine installed; it needs no GPU and no model."
        parts.append("\n\n".join(["## Reproduction", how, *blocks]))
    elif fault.trace:
        parts.append(f"## Reproduction\n\n`kvproof replay {fault.trace}.json` shows it in {fault.bad[-1]}.")
    for title, text in (
        ("Expected", report.expected),
        ("Observed", report.observed),
        ("Cause", report.cause),
        ("Suggestion", report.suggestion),
    ):
        parts.append(f"## {title}\n\n{text.strip()}")
    return "\n\n".join(parts) + "\n"


def _shared(script: Path) -> list[Path]:
    """The files beside a script that it imports, each before those that import it."""
    found: dict[Path, None] = {}
    for line in script.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words[:1] in (["from"], ["import"]) and (path := script.with_name(f"{words[1]}.py")).is_file():
            found |= dict.fromkeys([*_shared(path), path])
    return list(found)
