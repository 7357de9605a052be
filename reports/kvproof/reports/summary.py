"""A result in short: the table of verdicts, the work that was done, one sentence, and what to do about open checks."""

from collections import Counter
from collections.abc import Iterable

from kvproof.reports.result import THE_SPECIFICATION, Check, Refusals, Result
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.verdict import Exit, Verdict

WEAKEST_FIRST = (
    Verdict.REFUTED,
    Verdict.UNKNOWN,
    Verdict.NOT_REFUTED,
    Verdict.EXHAUSTED,
    Verdict.PROVED,
    Verdict.UNSUPPORTED,
)
NOTE, EXCUSED = "note", "excused"
Cell = tuple[str, Verdict | None]  # a word, and the verdict that it stands for
NO_CHECK: Cell = "–", None


def judges(result: Result) -> list[str]:
    """The judges that have a check in the result, in the order in which they began."""
    return list(dict.fromkeys(check.judge for check in result.checks))


def properties(result: Result) -> list[str]:
    """The properties that have a check, in the order of the specification; unknown properties come last."""
    found = {check.property for check in result.checks}
    return [name for name in MEANINGS if name in found] + sorted(found - MEANINGS.keys())


def scope_of(check: Check) -> str:
    """The part of the id after the property; empty if there is none."""
    return check.id.removeprefix(f"{check.judge}/{check.property}").removeprefix("/")


def cell(result: Result, property: str, judge: str) -> Cell:
    """The weakest verdict of a judge on a property over its scopes, as a word; NO_CHECK if it has no check of it."""
    weakest, word = weakest_of(_checks_of(result, property, judge))
    return NO_CHECK if weakest is None else (word or weakest.value, weakest)


def weakest_verdict(result: Result, property: str, judge: str) -> Verdict | None:
    """The weakest verdict of a judge on a property over its scopes; None if it has no check of it."""
    return weakest_of(_checks_of(result, property, judge))[0]


def _checks_of(result: Result, property: str, judge: str) -> list[Check]:
    return [check for check in result.checks if check.property == property and check.judge == judge]


def weakest_of(checks: Iterable[Check]) -> tuple[Verdict | None, str]:
    """The weakest verdict of these checks, None without any, and the word for it if it is not its own.

    NOTE: a note is weaker than all that holds. What one scope notes is not exhausted because another one did not see
    it. EXCUSED: each check that is refuted is excused.
    """
    checks = list(checks)
    verdicts = {check.verdict for check in checks}
    weakest = next((verdict for verdict in WEAKEST_FIRST if verdict in verdicts), None)
    if weakest not in (Verdict.REFUTED, Verdict.UNKNOWN) and any(check.note for check in checks):
        return Verdict.UNSUPPORTED, NOTE
    is_excused = weakest is Verdict.REFUTED and not any(check.is_failure for check in checks)
    return weakest, EXCUSED if is_excused else ""


def properties_by_cell(result: Result, judge: str) -> Counter[Cell]:
    """How many properties have which word and weakest verdict under the judge.

    Neither a note nor what is excused counts as refuted.
    """
    return Counter(found for name in properties(result) if (found := cell(result, name, judge)) != NO_CHECK)


def left_out(result: Result) -> list[str]:
    """Each judge that checked nothing at all for one single reason, such as a package that is not installed."""
    sentences = []
    for judge in judges(result):
        mine = [check for check in result.checks if check.judge == judge]
        reasons = {check.text for check in mine}
        if len(reasons) == 1 and all(check.verdict is Verdict.UNSUPPORTED and not check.note for check in mine):
            sentences.append(f"{judge} was left out: {reasons.pop()}")
    return sentences


def claims_asked(result: Result) -> list[str]:
    """What each search of the specification asked of every state, and the claims that it left out, as sentences."""
    sentences = []
    for judge in judges(result):
        mine = [check for check in result.checks if check.judge == judge]
        asked = {claim for check in mine for claim in check.claims}
        about = {check.property for check in mine if check.claims}
        if asked:
            sentences.append(
                f"{judge} evaluated {number(len(asked), 'claim', 'claims')} about "
                f"{number(len(about), 'property', 'properties')} in every state, and counted references and lists again"
            )
        for scope in dict.fromkeys(scope_of(check) for check in mine if check.claims_left_out):
            here = [check for check in mine if scope_of(check) == scope]
            left_out = {claim for check in here for claim in check.claims_left_out}
            names = dict.fromkeys(check.property for check in here if check.claims_left_out)
            sentences.append(
                f"{judge} left out {number(len(left_out), 'claim', 'claims')} in {scope}, about {', '.join(names)}: "
                "these properties are at most not refuted there"
            )
    return sentences


def claims_by_property(result: Result) -> list[tuple[str, str, list[str], list[str]]]:
    """For each judge and property: the claims that were evaluated in every state of every scope, and the others."""
    rows = []
    for judge in judges(result):
        for name in properties(result):
            mine = [check for check in result.checks if check.judge == judge and check.property == name]
            left_out = dict.fromkeys(claim for check in mine for claim in check.claims_left_out)
            asked = dict.fromkeys(claim for check in mine for claim in check.claims if claim not in left_out)
            if asked or left_out:
                rows.append((judge, name, list(asked), list(left_out)))
    return rows


def refusal_lines(result: Result) -> list[str]:
    """What the subject refused, a line for each judge: how many configurations, and the most frequent reasons."""
    return [refusal_line(one) for one in result.refusals]


def refusal_line(one: Refusals) -> str:
    """How many configurations were refused, and the most frequent reasons."""
    named = list(one.reasons.items())[:NAMED_MAX]
    more = f", and {len(one.reasons) - NAMED_MAX} more reasons" if len(one.reasons) > NAMED_MAX else ""
    reasons = "; ".join(f"{reason} ({count:,})" for reason, count in named)
    configurations = number(one.asked, "configuration", "configurations")
    return f"{one.judge}: the subject refused {one.count:,} of {configurations}: {reasons}{more}"


def work(result: Result) -> dict[str, dict[str, int]]:
    """The counts of each judge, by name. The checks of one judge and scope share one search, which counts once."""
    per_search: dict[tuple[str, str], dict[str, int]] = {}
    for check in result.checks:
        counts = per_search.setdefault((check.judge, scope_of(check)), {})
        for name, count in check.counts.items():
            counts[name] = max(count, counts.get(name, 0))
    done: dict[str, dict[str, int]] = {}
    for (judge, _), counts in per_search.items():
        total = done.setdefault(judge, {})
        for name, count in counts.items():
            total[name] = total.get(name, 0) + count
    return done


def work_line(counts: dict[str, int]) -> str:
    """Counts as `1,000,000 operations, 48,211 states`."""
    return ", ".join(f"{count:,} {name.removesuffix('s') if count == 1 else name}" for name, count in counts.items())


def refuted_or_noted(result: Result) -> list[Check]:
    """The checks that refute or note something, failures first."""
    found = [check for check in result.checks if check.verdict is Verdict.REFUTED or check.note]
    return sorted(found, key=lambda check: not check.is_failure)


def sentence(result: Result) -> str:
    """The verdict in one sentence. It never claims more than was checked."""
    code = result.exit_code()
    if code is Exit.REFUTED:
        failures = [check for check in result.checks if check.is_failure]
        names = _listed(dict.fromkeys(check.property for check in failures))
        end = "" if result.run.is_complete else "; the run did not finish"
        subjects = {result.subject_of(check) for check in failures}
        return f"{subjects.pop() if len(subjects) == 1 else result.run.subject} is refuted: {names}{end}."
    if code is Exit.NOTHING_CHECKED:
        return f"Nothing was checked of {result.run.subject}{_instead(result)}."
    if code is Exit.INCONCLUSIVE:
        return f"Inconclusive for {result.run.subject}: {'; '.join(_open_ends(result))}."
    if code is Exit.WORSE_THAN_BASELINE:
        if (lost := result.difference) is not None and lost.worse:
            return f"{result.run.subject} is worse than {lost.baseline}: {number(len(lost.worse), 'point', 'points')}."
        return f"{result.run.subject} is right as far as checked, and slower than the baseline."
    checked = _checked(result)
    decided = {check.property for check in checked if check.is_decided}
    done = "; ".join(f"{judge} {work_line(counts)}" for judge, counts in work(result).items() if counts)
    found = refuted_or_noted(result)
    excused = {check.property: None for check in found if not check.note}
    notes = {check.property: None for check in found if check.note}
    held = number(len(decided - excused.keys() - notes.keys()), "property holds", "properties hold")
    parts = [f"{held} as far as checked", *([done] if done else [])]
    unsupported = {check.property for check in checked} - decided - notes.keys()
    if unsupported:
        parts.append(f"{len(unsupported)} unsupported")
    if result.refusals:
        num_refused = sum(one.count for one in result.refusals)
        parts.append(f"{number(num_refused, 'configuration', 'configurations')} refused by the subject")
    if excused:
        parts.append(f"excused: {_listed(excused)}")
    if notes:
        parts.append(f"noted: {_listed(notes)}")
    subject = result.run.subject if result.has_looked else THE_SPECIFICATION
    return f"{subject} is not refuted: {'; '.join(parts)}."


def _checked(result: Result) -> list[Check]:
    """The checks that the last sentence counts: those of the subject, if any judge looked at it."""
    subject = result.run.subject if result.has_looked else THE_SPECIFICATION
    return [check for check in result.checks if result.subject_of(check) == subject]


def _instead(result: Result) -> str:
    """What is missing in a run that checked nothing of its subject, and what it checked instead."""
    if missing := result.missing_judges():
        reasons = dict.fromkeys(check.text for check in result.checks if check.judge in missing and check.text)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        return f" by {_listed(missing)}, which {'is' if len(missing) == 1 else 'are'} required{why}"
    if any(check.was_refused for check in result.checks):
        return ": it refused every configuration"
    if not result.is_about_another or not (decided := [check for check in result.checks if check.is_decided]):
        return ""
    names = _listed(dict.fromkeys(check.judge for check in decided))
    return f": {names} checked {THE_SPECIFICATION} of kvproof, and made no call of the subject"


def _open_ends(result: Result) -> list[str]:
    ends = []
    unknown = sum(check.verdict is Verdict.UNKNOWN for check in result.checks)
    if unknown:
        ends.append(f"{number(unknown, 'check is', 'checks are')} unknown")
    unmet = result.unmet_witnesses()
    if unmet:
        names = [f"{witness.name} ({witness.judge})" for witness in unmet]
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        ends.append(f"never reached: {_listed(names[:NAMED_MAX])}{more}")
    if not result.run.is_complete:
        ends.append("the run did not finish")
    return ends


def number(count: int, one: str, many: str) -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else many}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


MORE_WORK = {"verify": "--effort", "hunt": "--effort", "explore": "--effort", "device": "--budget"}  # by command
RESUMED = ("hunt", "verify")  # commands
BY_TIME = "--budget"
OUT_OF_TIME = (BY_TIME, "no time was left")  # a reason with one of them was the time limit
NAMED_MAX = 5  # situations that a sentence lists by name


def advice(result: Result) -> list[str]:
    """What the user of an undecided run can do, one sentence for each kind of open end."""
    refused = dict.fromkeys(check.judge for check in result.checks if check.was_refused)
    code = result.exit_code()
    if code is not Exit.INCONCLUSIVE and not (refused and code is Exit.NOTHING_CHECKED):
        return []
    sentences, option = [], MORE_WORK.get(result.run.command)
    unknown = [check for check in result.checks if check.verdict is Verdict.UNKNOWN]
    open_judges = dict.fromkeys(check.judge for check in unknown if check.judge not in refused)
    reasons = (*result.messages, *(check.text for check in unknown))
    if option and any(words in text for text in reasons for words in OUT_OF_TIME):
        option = f"{BY_TIME}, or leave it out"
    if not result.run.is_complete:
        command = f"kvproof {result.run.command} --resume"
        rest = f", or continue it with `{command}` and its --out folder" if result.run.command in RESUMED else ""
        sentences.append(f"The run did not finish: run the command again{rest}.")
    elif open_judges and option:
        sentences.append(
            f"To decide the unknown checks, raise {option}; more work is needed by {_listed(open_judges)}."
        )
    if refused:
        sentences.append(
            f"More work does not decide the checks of {_listed(refused)}: every configuration was refused. Let the "
            "subject accept some of those that its `capabilities` promise, or fix fewer fields."
        )
    unmet = [witness for witness in result.unmet_witnesses() if witness.judge.partition(" ")[0] not in refused]
    if unmet and option:
        who = _listed(dict.fromkeys(witness.judge for witness in unmet))
        fixed = "If --fix excludes it, fix fewer fields. " if "--fix" in result.run.options else ""
        sentences.append(
            f"To reach what was never reached, raise {option}; more work is needed by {who}. {fixed}If the subject can "
            "never do it, its `capabilities` must not promise it."
        )
    return sentences
