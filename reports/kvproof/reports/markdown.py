"""The Markdown summary for the page of a CI run. GitHub drops a summary over 1 MiB, so parts of it are cut."""

import re
from html import escape
from pathlib import Path

from kvproof.reports.counterexample import Counterexample, counterexamples
from kvproof.reports.printable import cut, printable
from kvproof.reports.result import Result
from kvproof.reports.summary import cell, judges, properties, sentence, work, work_line
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.verdict import Exit

SUMMARY_BYTES_MAX = 1_000_000
PART_BYTES_MAX = 60_000  # of one counterexample; report.txt has all of it
MARKS = {Exit.OK: "✅", Exit.REFUTED: "❌"}


def markdown(result: Result, folder: Path) -> str:
    """The verdict, the table, the work done, and the counterexamples in folded sections."""
    verdict = f"{MARKS.get(result.exit_code(), '⚠️')} **{_inline(sentence(result))}** Seed {result.run.seed}."
    done = [f"{judge}: {work_line(counts)}" for judge, counts in work(result).items() if counts]
    unmet = [f"never reached: {witness.name} ({witness.judge})" for witness in result.unmet_witnesses()]
    facts = "\n".join(f"- {_inline(line)}" for line in map(cut, (*done, *unmet, *result.messages)))
    head = [f"## kvproof {_inline(result.run.command)}", verdict, _table(result), _explained(result), facts]
    return _fitted([part for part in head if part], [_folded(found) for found in counterexamples(result, folder)])


def _table(result: Result) -> str:
    if not result.checks:
        return ""
    names = judges(result)
    rows = [["property", *names], ["---"] * (1 + len(names))]
    rows += [[name, *(cell(result, name, judge)[0] for judge in names)] for name in properties(result)]
    return "\n".join(f"| {' | '.join(_inline(word) for word in row)} |" for row in rows)


def _explained(result: Result) -> str:
    """What the refuted properties mean for a user of the server, from the glossary."""
    refuted = {check.property: None for check in result.checks if check.is_failure}
    rows = [f"- **{name}**: {MEANINGS[name].consequence}" for name in refuted if name in MEANINGS]
    return "\n".join(["If it is broken, a user of the server sees:", *rows]) if rows else ""


def _folded(found: Counterexample) -> str:
    text = _cut(found.text(), PART_BYTES_MAX)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"<details><summary>{escape(found.headline)}</summary>\n\n{fence}text\n{text}\n{fence}\n\n</details>"


def _fitted(head: list[str], examples: list[str]) -> str:
    """Append as many counterexamples as fit, and the number of those that do not fit."""
    text = _cut("\n\n".join(head), SUMMARY_BYTES_MAX // 2) + "\n"
    for number, example in enumerate(examples):
        longer = f"{text}\n{example}\n"
        if len(longer.encode("utf-8", "replace")) > SUMMARY_BYTES_MAX - 200:
            return f"{text}\n{len(examples) - number} more counterexamples are in report.txt.\n"
        text = longer
    return text


def _cut(text: str, bytes_max: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return text
    return data[:bytes_max].decode("utf-8", "ignore") + "\n… the rest is in report.txt"


def _inline(text: str) -> str:
    """The text on one line, with Markdown and HTML characters escaped."""
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", escape(" ".join(printable(text).split()), quote=False))
