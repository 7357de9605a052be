"""The Markdown summary for the page of a CI run. GitHub drops a summary over 1 MiB, so parts of it are cut."""

import re
from html import escape
from pathlib import Path

from kvproof.reports.counterexample import FindingView, also_found, counterexamples, shortest_first
from kvproof.reports.printable import cut, printable
from kvproof.reports.result import Result
from kvproof.reports.summary import advice, cell, judges, left_out, properties, refusal_lines, sentence, work, work_line
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.verdict import Exit

SUMMARY_BYTES_MAX = 1_000_000
PART_BYTES_MAX = 60_000  # of one counterexample; report.txt has all of it
MARKS = {Exit.OK: "✅", Exit.REFUTED: "❌"}


def markdown(result: Result, folder: Path) -> str:
    """The verdict, what it means for a user, the counterexamples in folded sections, the table, and the work done."""
    verdict = f"{MARKS.get(result.exit_code(), '⚠️')} **{inline(sentence(result))}**"
    verdict += f" Seed {result.run.seed}." if result.run.has_seed else ""
    done = [f"{judge}: {work_line(counts)}" for judge, counts in work(result).items() if counts]
    unmet = [f"never reached: {witness.name} ({witness.judge})" for witness in result.unmet_witnesses()]
    facts = "\n".join(
        f"- {inline(line)}"
        for line in map(
            cut, (*done, *left_out(result), *refusal_lines(result), *unmet, *_differences(result), *result.messages)
        )
    )
    to_do = "\n\n".join(map(inline, advice(result)))
    head = [f"## kvproof {inline(result.run.command)}", verdict, _explained(result), to_do]
    examples = [folded(found, others) for found, others in shortest_first(counterexamples(result, folder))]
    return fitted([part for part in head if part], examples, [part for part in (_table(result), facts) if part])


def _table(result: Result) -> str:
    if not result.checks:
        return ""
    names = judges(result)
    rows = [["property", *names], ["---"] * (1 + len(names))]
    rows += [[name, *(cell(result, name, judge)[0] for judge in names)] for name in properties(result)]
    return "\n".join(f"| {' | '.join(inline(word) for word in row)} |" for row in rows)


def _explained(result: Result) -> str:
    """What the refuted properties mean for a user of the server, from the glossary."""
    refuted = {check.property: None for check in result.checks if check.is_failure}
    rows = [f"- **{name}**: {MEANINGS[name].consequence}" for name in refuted if name in MEANINGS]
    return "\n".join(["If it is broken, a user of the server sees:", *rows]) if rows else ""


def folded(found: FindingView, others: list[FindingView]) -> str:
    """A counterexample in a section that can be folded; a failure is open. others: the same fault, found otherwise."""
    lines = [found.text_of_details(), *map(printable, also_found(found, others))]
    text = _cut("\n".join(lines), PART_BYTES_MAX)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    is_open = " open" if found.check.is_failure else ""
    return (
        f"<details{is_open}><summary>{escape(found.headline)}</summary>\n\n{fence}text\n{text}\n{fence}\n\n</details>"
    )


def fitted(head: list[str], examples: list[str], tail: list[str]) -> str:
    """As many counterexamples as fit between head and tail, and the number of those that do not fit."""
    text = _cut("\n\n".join(head), SUMMARY_BYTES_MAX // 4) + "\n"
    end = f"\n{_cut(part, SUMMARY_BYTES_MAX // 4)}\n" if (part := "\n\n".join(tail)) else ""
    for number, example in enumerate(examples):
        longer = f"{text}\n{example}\n"
        if len((longer + end).encode("utf-8", "replace")) > SUMMARY_BYTES_MAX - 200:
            return f"{text}\n{len(examples) - number} more counterexamples are in report.txt.\n{end}"
        text = longer
    return text + end


def _cut(text: str, bytes_max: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= bytes_max:
        return text
    return data[:bytes_max].decode("utf-8", "ignore") + "\n… the rest is in report.txt"


def inline(text: str) -> str:
    """The text on one line, with Markdown and HTML characters escaped."""
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", escape(" ".join(printable(text).split()), quote=False))


def _differences(result: Result) -> list[str]:
    if (found := result.difference) is None:
        return []
    return [*(f"worse than {found.baseline}: {one}" for one in found.worse), *found.better]
