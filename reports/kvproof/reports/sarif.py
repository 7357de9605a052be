"""SARIF 2.1.0: the findings for tools that show the results of code scanners (the security page of a CI, an editor).

Properties are the rules, findings are the results, and the steps of the shortest run are the thread flow. A finding
that fails the gate is an error. A known finding is a suppressed error, with the reason. A finding outside the contract
of the engine, or one that the run did not search for, is a warning. A missed cache hit is a note. A property that holds
is not listed. Each unknown or unsupported check and each missing witness is a notification of the invocation, and an
invocation that left something undecided was not successful.

A finding points to the line of the subject's code in which the run broke, if that code is in the repository: a line
that the checkout changed and the failing call entered, the line of the exception, or the method that was called. So a
pull request is annotated there. The saved trace, which has one line for each step, is a related location; without such
code it is the location, and without a trace the result is.
Paths of code are relative to the root of the repository (`%SRCROOT%`), the others to the folder of the result
(`RESULTS`). `informationUri` is there if the address at which kvproof is published is known (`address`).
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from kvproof.reports.address import address
from kvproof.reports.counterexample import NUMBERS, FindingView, counterexamples
from kvproof.reports.document import encodable
from kvproof.reports.printable import cut
from kvproof.reports.result import KNOWN, Check, Result
from kvproof.reports.source import source_of
from kvproof.reports.summary import properties, refusal_lines, scope_of, sentence
from kvproof.spec.text.properties import MEANINGS, NOTES
from kvproof.spec.trace import CodePlace, Trace
from kvproof.spec.verdict import Exit, Verdict

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
WITHOUT_TRACE = "result.json"  # the place of a finding without a saved trace
MECHANISM = "kvproofMechanism/v1"
LINE_HASH = "primaryLocationLineHash/v1"  # GitHub identifies alerts by this
SUCCESSFUL = (Exit.OK, Exit.REFUTED, Exit.WORSE_THAN_BASELINE)
WHERE_TO_READ = "How far it is proved is in kvproof's docs/proofs.md, all properties are in docs/red.md."
STEPS = '  "steps": ['  # in a trace file each step has a line after this one
ROOT, RESULTS = "%SRCROOT%", "RESULTS"
BASES = {
    ROOT: {"description": {"text": "The root of the repository."}},
    RESULTS: {"description": {"text": "The folder of this file, with the result and the saved traces."}},
}


def sarif(result: Result, folder: Path) -> bytes:
    """The result as a SARIF log with one run. folder: where the traces of the result are."""
    names = properties(result)
    places = {name: place for place, name in enumerate(names)}
    run = {
        "tool": {"driver": _driver(result, names)},
        "automationDetails": {"id": f"kvproof {result.run.command}/{result.run.subject}/"},
        "invocations": [_invocation(result, places)],
        "results": [_finding(found, places, folder) for found in counterexamples(result, folder)],
        "originalUriBaseIds": BASES,
        "columnKind": "unicodeCodePoints",
        "properties": _facts(result),
    }
    log = {"$schema": SCHEMA, "version": VERSION, "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(encodable(log)), indent=2) + b"\n"


# What was run -----------------------------------------------------------------------------------------------------


def _driver(result: Result, names: list[str]) -> dict[str, Any]:
    driver = {"name": "kvproof", "version": result.run.version, "rules": [_rule(name) for name in names]}
    return driver | ({"informationUri": found} if (found := address()) else {})


def _rule(name: str) -> dict[str, Any]:
    meaning = MEANINGS.get(name)
    claim, everyday = (meaning.sentence, f" If it is broken: {meaning.consequence}") if meaning else (name, "")
    short = f"**{name}**: {claim}" if meaning else f"**{name}**"
    sees = f"\n\nWhat a user of the server sees if it is broken: {meaning.consequence}" if meaning else ""
    return {
        "id": name,
        "shortDescription": {"text": claim},
        "fullDescription": {"text": claim},
        "help": {"text": f"{claim}{everyday} {WHERE_TO_READ}", "markdown": f"{short}{sees}\n\n{WHERE_TO_READ}"},
        "defaultConfiguration": {"level": "note" if name in NOTES else "error"},
    }


def _facts(result: Result) -> dict[str, Any]:
    run = result.run
    verdicts = {verdict.value: sum(check.verdict is verdict for check in result.checks) for verdict in Verdict}
    return {
        "seed": str(run.seed),  # as text, because it may exceed the numbers that JSON readers represent exactly
        "subject": run.subject,
        "command": run.command,
        "verdict": sentence(result),
        "verdicts": verdicts,
        "isComplete": run.is_complete,
        "assumptions": run.assumptions,
        "host": run.host,
    }


def _invocation(result: Result, places: dict[str, int]) -> dict[str, Any]:
    code = result.exit_code()
    is_open = any(check.verdict is Verdict.UNKNOWN for check in result.checks) or bool(result.unmet_witnesses())
    invocation: dict[str, Any] = {
        "executionSuccessful": result.run.is_complete and code in SUCCESSFUL and not is_open,
        "exitCodeDescription": sentence(result),
        "toolExecutionNotifications": list(_notifications(result, places)),
    }
    if result.run.is_complete:  # otherwise the run still continues, or was ended from outside
        invocation["exitCode"] = int(code)
    if result.run.started:
        invocation["startTimeUtc"] = result.run.started
    return invocation


def _notifications(result: Result, places: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Undecided checks, missing witnesses, and the messages of the run."""
    for check in result.checks:
        if check.verdict in (Verdict.UNKNOWN, Verdict.UNSUPPORTED):
            search = f"{check.judge} {scope_of(check)}".rstrip()
            text = f"{check.property} is {check.verdict.value} ({search}): {cut(check.text) or 'no reason is given'}"
            level = "warning" if check.verdict is Verdict.UNKNOWN else "note"
            rule = {"id": check.property, "index": places[check.property]}
            yield {"level": level, "message": {"text": text}, "associatedRule": rule}
    for witness in result.unmet_witnesses():
        yield {"level": "warning", "message": {"text": f"never reached: {witness.name} ({witness.judge})"}}
    for line in refusal_lines(result):
        yield {"level": "warning", "message": {"text": cut(line)}}
    if not result.run.is_complete:
        yield {"level": "error", "message": {"text": "The run did not finish."}}
    for message in result.messages:
        yield {"level": "warning", "message": {"text": cut(message)}}


# What was found ---------------------------------------------------------------------------------------------------


def _finding(found: FindingView, places: dict[str, int], folder: Path) -> dict[str, Any]:
    check = found.check
    fingerprint = _fingerprint(check)
    finding: dict[str, Any] = {
        "ruleId": check.property,
        "ruleIndex": places[check.property],
        "kind": "fail",
        "level": _level(check),
        "message": {"text": found.text()},
        "locations": [_location(check.trace or WITHOUT_TRACE, _last_line(found))],
        "partialFingerprints": {MECHANISM: fingerprint, LINE_HASH: fingerprint},
        "properties": {"check": check.id, "judge": check.judge, "signature": cut(check.signature)},
    }
    if found.trace is not None and (source := source_of(found.trace)) is not None:
        finding["relatedLocations"] = [finding["locations"][0] | {"message": {"text": "The saved run"}}]
        finding["locations"] = [_place_in_code(source)]
    if check.excused:
        finding["properties"]["excused"] = check.excused
    if check.excused.startswith(KNOWN):
        finding["suppressions"] = [{"kind": "external", "justification": check.excused}]
    if found.trace is not None and found.trace.operations:
        finding["codeFlows"] = [_code_flow(found, found.trace)]
    return finding


def _level(check: Check) -> str:
    if check.note:
        return "note"
    return "warning" if check.excused and not check.excused.startswith(KNOWN) else "error"


def _fingerprint(check: Check) -> str:
    """A hash of property and mechanism. It does not depend on the run, the judge or the seed."""
    mechanism = check.signature or re.sub(NUMBERS, " ", check.said.partition("\n")[0])
    return hashlib.sha256(f"{check.property}\n{mechanism}".encode("utf-8", "backslashreplace")).hexdigest()


def _code_flow(found: FindingView, trace: Trace) -> dict[str, Any]:
    first = _first_line(found)
    file = found.check.trace or WITHOUT_TRACE
    last = len(trace.operations) - 1
    places = []
    for number, step in enumerate(found.steps):
        location = _location(file, None if first is None else first + number)
        location["message"] = {"text": step}
        importance = "essential" if number == last else "important"
        places.append({"location": location, "executionOrder": number + 1, "importance": importance})
    config = ", ".join(f"{name} {value}" for name, value in trace.config.items())
    return {"message": {"text": f"The steps, with {config}"}, "threadFlows": [{"locations": places}]}


def _place_in_code(source: CodePlace) -> dict[str, Any]:
    address = {"uri": quote(source.file), "uriBaseId": ROOT}
    return {
        "physicalLocation": {"artifactLocation": address, "region": {"startLine": source.line}},
        "logicalLocations": [{"fullyQualifiedName": source.function, "kind": "function"}],
    }


def _location(file: str, line: int | None) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(Path(file).as_posix()), "uriBaseId": RESULTS}}
    if line is not None:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}


def _first_line(found: FindingView) -> int | None:
    """The line of the first step in the trace file, from 1; None without steps, or if the file has another layout."""
    if found.path is None or found.trace is None or not found.trace.steps:
        return None
    lines = found.path.read_text(encoding="utf-8").split("\n")
    return lines.index(STEPS) + 2 if STEPS in lines else None


def _last_line(found: FindingView) -> int:
    """The line of the failing step; 1 if the steps have no lines."""
    first = _first_line(found)
    return 1 if first is None or found.trace is None else first + len(found.trace.steps) - 1
