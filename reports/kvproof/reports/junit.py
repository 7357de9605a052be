"""JUnit XML: one test case for each check, so that a CI shows which property broke under which judge.

A refuted property is a failure with the whole counterexample. An unsupported or unknown check is skipped with the
reason; it never passes.
"""

import io
import re
from pathlib import Path

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from kvproof.reports.counterexample import Counterexample, counterexamples
from kvproof.reports.printable import cut, printable
from kvproof.reports.result import Check, Result
from kvproof.reports.summary import scope_of, sentence
from kvproof.spec.verdict import Verdict

# Characters that XML 1.0 cannot contain, not even as a reference. The message of an engine may have them.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(result: Result, folder: Path) -> bytes:
    """The result as one test suite."""
    suite = TestSuite(_safe(f"kvproof {result.run.command}"))
    for name, value in _properties(result).items():
        suite.add_property(name, _safe(value))
    if result.run.started:
        suite.timestamp = _safe(result.run.started)
    found = {example.check.id: example for example in counterexamples(result, folder)}
    suite.add_testcases([_test_case(check, found.get(check.id)) for check in result.checks])
    document = JUnitXml("kvproof")
    document.add_testsuite(suite)
    file = io.BytesIO()
    document.write(file)
    return file.getvalue() + b"\n"


def _properties(result: Result) -> dict[str, str]:
    run = result.run
    facts = {"seed": str(run.seed), "version": run.version, "subject": run.subject, "command": run.command}
    return facts | run.host | {"is_complete": str(run.is_complete).lower(), "verdict": sentence(result)}


def _test_case(check: Check, found: Counterexample | None) -> TestCase:
    scope = scope_of(check)
    name = f"{check.property} ({scope})" if scope else check.property
    case = TestCase(_safe(name), classname=_safe(f"kvproof.{check.judge}"), time=round(check.seconds, 3))
    if found is not None and check.is_failure:
        failure = Failure(_safe(found.headline), "refuted")
        failure.text = _safe(found.text())
        case.result = [failure]
    elif check.verdict in (Verdict.UNKNOWN, Verdict.UNSUPPORTED):
        reason = f"{check.verdict.value}: {check.text}" if check.text else check.verdict.value
        case.result = [Skipped(_safe(cut(reason)), check.verdict.value)]
    case.system_out = _safe(_output(check, found))
    return case


def _output(check: Check, found: Counterexample | None) -> str:
    lines = [f"verdict: {check.verdict.value}", *(f"{name}: {count}" for name, count in check.counts.items())]
    if found is None:
        return "\n".join(lines)
    if not check.is_failure:
        lines.append(found.text())
    return "\n".join([*lines, *([found.replay] if found.replay else [])])


def _safe(text: str) -> str:
    return NOT_IN_XML.sub(lambda match: f"\\x{ord(match.group()):02x}", printable(text))
