"""JUnit XML: one test case for each check, so that a CI shows which property broke under which judge.

A refuted property is a failure with the whole counterexample. An unknown check is an error, so that a CI which reads
only this file does not take an undecided run for one that passed; an unsupported one is skipped. Both have the reason.
A run that is neither passed nor refuted has one more case, an error: something was never reached, nothing was checked,
or the result is worse than the baseline.

The properties that one judge decides together share its time, so that the times of all cases add up to those of the
judges.
"""

import io
import re
from collections import Counter
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from kvproof.reports.counterexample import FindingView, counterexamples
from kvproof.reports.printable import cut, printable
from kvproof.reports.result import Check, Result
from kvproof.reports.summary import refusal_lines, scope_of, sentence
from kvproof.spec.verdict import Exit, Verdict

# Characters that XML 1.0 cannot contain, not even as a reference. The message of an engine may have them.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(result: Result, folder: Path) -> bytes:
    """The result as one test suite."""
    suite = TestSuite(_safe(f"kvproof {result.run.command}"))
    for name, value in _properties(result).items():
        suite.add_property(_safe(name), _safe(value))
    if result.run.started:
        suite.timestamp = _safe(result.run.started)
    found = {example.check.id: example for example in counterexamples(result, folder)}
    together = Counter(map(_decided_together, result.checks))
    cases = [_test_case(c, found.get(c.id), c.seconds / together[_decided_together(c)]) for c in result.checks]
    if result.exit_code() not in (Exit.OK, Exit.REFUTED):
        cases.append(_case_of_run(result))
    suite.add_testcases(cases)
    document = JUnitXml("kvproof")
    document.add_testsuite(suite)
    file = io.BytesIO()
    document.write(file)
    return file.getvalue() + b"\n"


def _properties(result: Result) -> dict[str, str]:
    run = result.run
    facts = {"seed": str(run.seed), "version": run.version, "subject": run.subject, "command": run.command}
    refusals = {f"refused, {line.partition(':')[0]}": line for line in refusal_lines(result)}
    return facts | refusals | run.host | {"is_complete": str(run.is_complete).lower(), "verdict": sentence(result)}


def _decided_together(check: Check) -> tuple[str, str, float]:
    """Equal for checks that one judge made in one go: each of them has the time of all."""
    return check.judge, scope_of(check), check.seconds


def _case_of_run(result: Result) -> TestCase:
    case = TestCase("the run is decided", classname="kvproof.run", time=0)
    case.result = [Error(_safe(cut(sentence(result))), result.exit_code().name.lower())]
    return case


def _test_case(check: Check, found: FindingView | None, seconds: float) -> TestCase:
    scope = scope_of(check)
    name = f"{check.property} ({scope})" if scope else check.property
    case = TestCase(_safe(name), classname=_safe(f"kvproof.{check.judge}"), time=round(seconds, 3))
    if found is not None and check.is_failure:
        failure = Failure(_safe(found.headline), "refuted")
        failure.text = _safe(found.text())
        case.result = [failure]
    elif check.verdict in (Verdict.UNKNOWN, Verdict.UNSUPPORTED):
        reason = f"{check.verdict.value}: {check.text}" if check.text else check.verdict.value
        kind = Error if check.verdict is Verdict.UNKNOWN else Skipped
        case.result = [kind(_safe(cut(reason)), check.verdict.value)]
    case.system_out = _safe(_output(check, found))
    return case


def _output(check: Check, found: FindingView | None) -> str:
    lines = [f"verdict: {check.verdict.value}", *(f"{name}: {count}" for name, count in check.counts.items())]
    if found is None:
        return "\n".join(lines)
    if not check.is_failure:
        lines.append(found.text())
    return "\n".join([*lines, *([found.replay] if found.replay else [])])


def _safe(text: str) -> str:
    return NOT_IN_XML.sub(lambda match: f"\\x{ord(match.group()):02x}", printable(text))
