"""The walker as a stage, of a manager or of a whole scheduler."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kvproof.check import coverage
from kvproof.check.commands.claims import (
    STOPPED,
    WALKER,
    Outcome,
    Refutation,
    about_loop,
    about_subject,
    decided,
    met,
    noted,
)
from kvproof.check.commands.saving import Saving
from kvproof.check.isolation.searching import walk, walk_loop
from kvproof.check.loop import coverage as loop_coverage
from kvproof.check.loop.protocol_check import is_loop_subject
from kvproof.check.session import Said, Stage, Stint
from kvproof.check.subject import ManagerSubject
from kvproof.check.walk import Walk
from kvproof.spec.verdict import Check, Verdict

JUDGE, LOOP_JUDGE = WALKER, "loop"
NUM_OPERATIONS_MAX = 1_000_000


class Search(NamedTuple):
    """What is walked: a manager or a scheduler."""

    judge: str
    walk: Callable[..., Walk]
    promised: list[Check]
    expected: dict[str, bool]

    @staticmethod
    def of(subject: Any) -> "Search":
        """The walk that suits the subject."""
        if is_loop_subject(subject):
            witnesses = loop_coverage.expected_witnesses(subject)
            return Search(LOOP_JUDGE, walk_loop, about_loop(LOOP_JUDGE, subject), witnesses)
        return Search(JUDGE, walk, about_subject(JUDGE, subject), coverage.expected_witnesses(subject))


def walker_stage(
    make: Callable[[], ManagerSubject],
    subject: ManagerSubject,
    saving: Saving,
    share: float,
    max_operations: int = NUM_OPERATIONS_MAX,
    keeps_going: bool = False,
) -> Stage:
    """Walk until something is refuted, so many operations are done, or the time is up.

    Going on, every finding of another kind (property, last operation, exception) is minimised and reported once.
    """
    search = Search.of(subject)
    judge = search.judge

    def run(stint: Stint) -> Iterator[Said]:
        deadline = time.monotonic() + stint.seconds
        total, outcome, kinds = Walk(), Outcome(Verdict.NOT_REFUTED, {}, 0.0), Counter[tuple[str, str, str]]()
        seed = stint.seed
        while total.num_operations < max_operations and (left := deadline - time.monotonic()) > 0:
            done = search.walk(
                make(),
                seed,
                max_operations=max_operations - total.num_operations,
                seconds=left,
                progress=stint.further(total.num_operations),
            )
            total.add(done)
            if done.finding is None:
                break
            kind = (done.finding.property, done.operations[-1][0] if done.operations else "open", done.finding.cause)
            kinds[kind] += 1
            if kinds[kind] == 1:
                found = saving.save(judge, done.config, done.operations, done.finding, total.num_operations)
                outcome.refutations.append(_told_apart(found, kind, keeps_going))
            if not keeps_going:
                break
            seed += 1
        outcome.seconds = total.seconds
        outcome.counts = {"operations": total.num_operations, "runs": total.num_runs}
        if outcome.refutations and not keeps_going:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, STOPPED
        elif total.is_unsupported:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, "the subject accepted no configuration that was drawn"
        elif not total.num_operations:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, "no time was left"
        is_cut_short = outcome.verdict is Verdict.UNKNOWN
        outcome.refutations += noted(total.notes, total.num_operations, "operations")
        yield from decided(judge, search.promised, outcome)
        yield from met(judge, total.witnesses, {} if is_cut_short else search.expected)

    return Stage(judge, share, search.promised, run)


def _told_apart(found: Refutation, kind: tuple[str, str, str], keeps_going: bool) -> Refutation:
    if keeps_going:
        found.scope = "-".join(part.replace(" ", "-") for part in kind[1:] if part)
    return found
