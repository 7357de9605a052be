"""The page of a run, `index.html`: one HTML file without external resources.

It answers in this order: what is the verdict and what does it rest on, what was found, which property was judged by
whom, how far did the judges come, what was assumed or left out, and how is it repeated. Everything is rendered from the
result document and from the pages of its counterexamples, so that `kvproof report` can write it again.
"""

import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kvproof.reports.counterexample import FindingView, counterexamples, page_of, shortest_first
from kvproof.reports.counterexample_page import frames_beside
from kvproof.reports.device_page import data_plane_values
from kvproof.reports.printable import cut, printable
from kvproof.reports.reached import code_by_file, not_reached
from kvproof.reports.result import OPERATIONS, Check, Result
from kvproof.reports.summary import (
    NOTE,
    WEAKEST_FIRST,
    advice,
    claims_by_property,
    judges,
    left_out,
    number,
    properties,
    properties_by_cell,
    refusal_lines,
    scope_of,
    sentence,
    weakest_of,
    work,
    work_line,
)
from kvproof.reports.template import render
from kvproof.spec.text.properties import MEANINGS, Meaning
from kvproof.spec.verdict import Exit, Verdict

RUN_PAGE = "index.html"
TEMPLATE = "run_page.html"
FRAMES_BYTES_MAX = 4_000_000  # of all runs together; those that do not fit are in their own pages
NOT_DRAWN = (
    "The steps of this run are not drawn here, because they were not repeated when it was found. The command below "
    "repeats them, and writes a page with each step if it is given --page."
)
NAMED_MAX = 12  # properties that a reason lists by name
COLOURS = {Exit.OK: "right", Exit.REFUTED: "wrong"}
BADGES = {
    Exit.OK: "not refuted",
    Exit.REFUTED: "refuted",
    Exit.NOTHING_CHECKED: "nothing checked",
    Exit.WORSE_THAN_BASELINE: "worse than the baseline",
}
WORK = "operations", "obligations", "transitions", "lines", "cases"  # counts that say best how much was done
PROVER, FAULTS = "prover", "faults"
NOTICED = {Verdict.NOT_REFUTED: "noticed", Verdict.REFUTED: "not noticed"}  # of a planted fault
SOLVERS = "z3", "cvc5"
PARTS = {
    PROVER: "obligations",
    "vacuity": "checks",
    "data plane": "executors",
    FAULTS: "faults",
}  # what a judge has instead of scopes
SPECIFICATION = "the specification"  # the subject of `kvproof explore` without --subject

WORDS = {
    Verdict.PROVED: "A solver has shown it for every size. It is a claim about the specification.",
    Verdict.EXHAUSTED: "Every reachable state of a small, stated scope was visited, and none breaks it.",
    Verdict.NOT_REFUTED: "Many operations were run, and none broke it. A longer run may still break it.",
    Verdict.UNKNOWN: "The check did not finish. It never counts as success.",
    Verdict.REFUTED: "It is false: a run that can be repeated breaks it.",
}
JUDGES = {
    "walker": "random runs of the subject",
    "explorer": "small scopes of the subject, state by state",
    "hypothesis": "runs of the subject that Hypothesis draws and shortens",
    "prover": "proofs about the specification, for every size",
    "lint": "the language of the specification is kept",
    "vacuity": "every rule can fire, and no proof has contradictory hypotheses",
    "pin": "the proofs are those that were pinned",
    "specification": "every state of the specification in small scopes",
    "loop": "random runs of the scheduler, step by step",
    "pool": "random runs of the pool",
    "store": "random runs of the store, with its transfers",
    "data plane": "the bytes of swaps and copies",
    "recording": "a recording of a live block manager",
    FAULTS: "faults that were planted one at a time, and must be noticed",
}


class MatrixCell(NamedTuple):
    """What one judge says about one property. style: a class of the style sheet. counts: the work behind it."""

    word: str
    style: str
    counts: str


class SearchedScope(NamedTuple):
    """One small scope that a judge searched."""

    judge: str
    name: str
    word: str
    style: str
    counts: str


class ProofCell(NamedTuple):
    """The obligation of one rule and one invariant. seconds: of the solver, as text; empty below 0.01."""

    word: str
    style: str
    seconds: str
    title: str


class ProofMatrix(NamedTuple):
    """The proofs of one suite: a row for each rule, a column for each invariant that more than one rule has."""

    suite: str
    invariants: list[str]
    rows: list[tuple[str, list[ProofCell | None]]]
    others: list[tuple[str, int, str, str, str]]  # rule, number, weakest word, style, seconds


def run_page(result: Result, folder: Path) -> str:
    """Render the page of a run. folder: where its counterexamples are."""
    views = _findings(result, folder)
    done, columns = work(result), judges(result)
    num_obligations = sum(check.judge == PROVER for check in result.checks)
    if PROVER in done and "obligations" not in done[PROVER]:  # each check of `kvproof prove` is one
        done[PROVER] = {"obligations": num_obligations, **done[PROVER]}
    words = [(verdict.value, _style(verdict), meaning) for verdict, meaning in WORDS.items()]
    counts = {judge: _words(properties_by_cell(result, judge)) for judge in columns}
    return render(
        TEMPLATE,
        {},
        run=result.run,
        result=result,
        title=_capitalized(result.run.subject) or "A run",
        sentence=_capitalized(printable(sentence(result))),
        colour=COLOURS.get(result.exit_code(), "open"),
        badge=BADGES.get(result.exit_code(), "inconclusive"),
        figures=_figures(result, sum(one.check.is_failure for one in views)),
        advice=advice(result),
        rests_on=[
            (judge, JUDGES.get(judge.partition(" (")[0], ""), counts[judge], work_line(done.get(judge, {})))
            for judge in columns
        ],
        words=words,
        used=[word for word in words if any(of_judge[word[0]] for of_judge in counts.values())],
        failures=[one for one in views if one.check.is_failure],
        excused=[one for one in views if not one.check.is_failure],
        judges=columns,
        matrix=_rows(result, columns),
        proofs=_proofs(result.checks),
        solvers=", ".join(f"{name} {result.run.host[name]}" for name in SOLVERS if name in result.run.host),
        scopes=_scopes_searched(result.checks),
        claims=claims_by_property(result),
        planted=_planted(result.checks),
        witnesses=_witnesses(result),
        not_reached=printable(not_reached(result)),
        code=[
            (printable(file), sizes, [(printable(name), line, what) for name, line, what in rows])
            for file, sizes, rows in code_by_file(result)
        ],
        assumptions=[_named_first(one) for one in result.run.assumptions],
        not_looked_at=_reasons(result, Verdict.UNSUPPORTED),
        undecided=_reasons(result, Verdict.UNKNOWN),
        left_out=[*left_out(result), *map(printable, refusal_lines(result))],
        messages=[printable(cut(one)) for one in result.messages],
        difference=result.difference,
        command=printable(_command(result)),
        checked=[
            f"{JUDGES.get(judge.partition(' (')[0], judge)} ({judge}): {work_line(done[judge])}"
            for judge in columns
            if done.get(judge)
        ],
        number=number,
        **({"plane": None} if result.data_plane is None else data_plane_values(result, with_plots=False)),
    )


def _rows(result: Result, columns: list[str]) -> list[tuple[str, Meaning | None, list[MatrixCell], bool]]:
    """For each property its meaning, what each judge says about it, and whether any judge decided it."""
    by_cell: dict[tuple[str, str], list[Check]] = {}
    for check in result.checks:
        by_cell.setdefault((check.property, check.judge), []).append(check)
    decided = {check.property for check in result.checks if check.verdict is not Verdict.UNSUPPORTED or check.note}
    return [
        (name, MEANINGS.get(name), [_cell(by_cell.get((name, judge), [])) for judge in columns], name in decided)
        for name in properties(result)
    ]


def _figures(result: Result, num_failures: int) -> list[tuple[str, str, str]]:
    """The numbers at the top of the page: each with what it counts, and a class of the style sheet."""
    decided = {check.property for check in result.checks if check.verdict is not Verdict.UNSUPPORTED}
    found = [
        (f"{num_failures:,}", "finding" if num_failures == 1 else "findings", "refuted" if num_failures else "held"),
        (f"{len(decided):,}", "property judged" if len(decided) == 1 else "properties judged", ""),
    ]
    totals: Counter[str] = Counter()
    for counts in work(result).values():
        totals.update(counts)
    totals["obligations"] = totals["obligations"] or sum(check.judge == PROVER for check in result.checks)
    for name in [name for name in WORK if totals[name]][:2]:
        found.append((f"{totals[name]:,}", name.removesuffix("s") if totals[name] == 1 else name, ""))
    if result.run.seconds:  # of a run that was killed they are not known
        found.append((_duration(result.run.seconds), "duration" if result.run.is_complete else "did not finish", ""))
    return found


def _capitalized(text: str) -> str:
    """A text that begins with an article, as the beginning of a line; any other begins with a name."""
    return f"The{text[3:]}" if text.startswith("the ") else text


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if not minutes else f"{minutes} min {rest} s"


def _findings(result: Result, folder: Path) -> list[FindingView]:
    """Each finding with its run, failures first; the runs that fit."""
    left, views = FRAMES_BYTES_MAX, []
    for index, (found, others) in enumerate(shortest_first(counterexamples(result, folder)), 1):
        frames = None if found.path is None else frames_beside(found.path)
        why = "" if found.path is None else NOT_DRAWN
        if found.path is not None and frames is not None and len(frames) > left:
            frames, why = None, f"This page has no room for the steps of this run. {page_of(found.path)} shows them."
        left -= len(frames or "")
        found.name, found.frames, found.others, found.why_not_drawn = f"finding-{index}", frames or "", others, why
        views.append(found)
    return views


def _style(verdict: Verdict) -> str:
    return "held" if verdict is Verdict.NOT_REFUTED else verdict.value


def _words(cells: Counter[tuple[str, Verdict | None]]) -> Counter[str]:
    return Counter({word: count for (word, _), count in cells.items()})


def _weakest(checks: Iterable[Check]) -> Verdict:
    there = {check.verdict for check in checks}
    return next(verdict for verdict in WEAKEST_FIRST if verdict in there)


def _cell(checks: list[Check]) -> MatrixCell:
    verdict, word = weakest_of(checks)
    if verdict is None:
        return MatrixCell("–", "unsupported", "")
    if word:
        return MatrixCell(word, NOTE, "")
    counts: Counter[str] = Counter()
    for check in checks:
        counts.update(check.counts)
    scopes = {scope_of(check) for check in checks if check.verdict is not Verdict.UNSUPPORTED}
    entered = {scope_of(check) for check in checks if check.counts} or scopes
    many = PARTS.get(checks[0].judge, "scopes")
    if entered != scopes:
        parts = [f"{len(entered):,} of {len(scopes):,} {many}"]
    elif len(scopes) > 1 or (many != "scopes" and "" not in scopes):
        parts = [number(len(scopes), many.removesuffix("s"), many)]
    else:
        parts = []
    parts += [work_line(counts)] if counts else []
    return MatrixCell(verdict.value, _style(verdict), ", ".join(parts))


def _scopes_searched(checks: list[Check]) -> list[SearchedScope]:
    """The scopes that were searched, with the greatest counts of any property: they share one search."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        if scope_of(check) and check.counts and check.judge not in PARTS:
            groups.setdefault((check.judge, scope_of(check)), []).append(check)
    found = []
    for (judge, name), mine in groups.items():
        counts: dict[str, int] = {}
        for check in mine:
            counts |= {what: max(count, counts.get(what, 0)) for what, count in check.counts.items()}
        verdict = _weakest(mine)
        found.append(SearchedScope(judge, name, verdict.value, _style(verdict), work_line(counts)))
    return found


def _planted(checks: list[Check]) -> list[tuple[str, str, str, str]]:
    """The planted faults, those that nothing noticed first: name, what became of it, a style, what the run says."""
    mine = [check for check in checks if check.judge == FAULTS]
    mine.sort(key=lambda check: WEAKEST_FIRST.index(check.verdict))
    return [
        (
            one.id.removeprefix(f"{FAULTS}/"),
            NOTICED.get(one.verdict, one.verdict.value),
            _style(one.verdict),
            printable(cut(one.text)) or work_line(one.counts),
        )
        for one in mine
    ]


def _witnesses(result: Result) -> list[tuple[str, list[tuple[str, int, str]]]]:
    """For each judge: the situations, how often each was reached, and whether that is enough. Missing ones first."""
    found: dict[str, list[tuple[str, int, str]]] = {}
    for one in result.witnesses:
        absent = "never done" if one.judge.endswith(OPERATIONS) else "not expected"
        word = "reached" if one.count else "never reached" if one.is_expected else absent
        found.setdefault(one.judge, []).append((one.name, one.count, word))
    order = {"never reached": 0, "never done": 1, "reached": 2, "not expected": 3}
    return [(judge, sorted(rows, key=lambda row: (order[row[2]], -row[1]))) for judge, rows in found.items()]


def _reasons(result: Result, verdict: Verdict) -> list[tuple[str, str, str]]:
    """For each judge and reason of this verdict: the judge, the properties or their number, the reason."""
    places: dict[tuple[str, str], tuple[dict[str, None], set[str]]] = {}
    for check in result.checks:
        if check.verdict is verdict:
            names, scopes = places.setdefault((check.judge, check.text or "no reason is given"), ({}, set()))
            names[check.property] = None
            scopes.add(scope_of(check))
    found = []
    for (judge, reason), (names, scopes) in places.items():
        what = ", ".join(names) if len(names) <= NAMED_MAX else f"{len(names)} properties"
        where = f" in {len(scopes)} scopes" if len(scopes) > 1 else ""
        found.append((judge, f"{what}{where}", printable(cut(reason))))
    return found


def _named_first(assumption: str) -> tuple[str, str]:
    name, _, text = assumption.partition(": ")
    return printable(name), printable(text)


def _command(result: Result) -> str:
    """The command that repeats the run, with the options of the document; empty for a command on files."""
    run = result.run
    if run.command not in ("hunt", "verify", "explore", "device", "prove"):
        return ""
    is_named = run.command in ("hunt", "verify") or (run.command == "explore" and run.subject != SPECIFICATION)
    words = ["--subject", run.subject] if is_named else []
    words += ["--seed", str(run.seed)] if run.has_seed else []
    words += ["--effort", run.effort] if run.effort else []
    words += [] if run.budget_seconds is None else ["--budget", f"{run.budget_seconds:g}"]
    return shlex.join(["kvproof", run.command, *words, *run.options])


# Rules and invariants ---------------------------------------------------------------------------------------------


def _proofs(checks: list[Check]) -> list[ProofMatrix]:
    """The matrices of `kvproof prove`, whose checks are named `prover/<property>/<suite>/<rule>/<what is proved>`."""
    suites: dict[str, dict[str, dict[str, Check]]] = {}
    for check in checks:
        suite, rule, what, *_ = (*scope_of(check).split("/", 2), "", "", "")
        if check.judge == PROVER and what:
            suites.setdefault(suite, {}).setdefault(rule, {})[what] = check
    return [_matrix(suite, rules) for suite, rules in suites.items()]


def _matrix(suite: str, rules: dict[str, dict[str, Check]]) -> ProofMatrix:
    times = Counter(what for proved in rules.values() for what in proved)
    invariants = [what for what, count in times.items() if count > 1 and what.isidentifier()]
    rows: list[tuple[str, list[ProofCell | None]]] = []
    others = []
    for rule, proved in rules.items():
        row = [_proof(proved[what]) if what in proved else None for what in invariants]
        if any(row):
            rows.append((rule, row))
        if rest := [check for what, check in proved.items() if what not in invariants]:
            verdict = _weakest(rest)
            seconds = f"{sum(check.seconds for check in rest):.1f} s"
            others.append((rule, len(rest), verdict.value, _style(verdict), seconds))
    return ProofMatrix(suite, invariants, rows, others)


def _proof(check: Check) -> ProofCell:
    word, seconds = check.verdict.value, f"{check.seconds:.2f}"
    return ProofCell(word, _style(check.verdict), "" if seconds == "0.00" else seconds, f"{word}, {seconds} s")
