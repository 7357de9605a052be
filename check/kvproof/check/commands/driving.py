"""Hypothesis as a stage."""

from collections.abc import Callable, Iterator

from kvproof.check.commands.claims import STOPPED, Outcome, about_subject, decided, met, noted
from kvproof.check.commands.saving import Saving
from kvproof.check.machine import drive
from kvproof.check.session import Said, Stage, Stint
from kvproof.check.subject import ManagerSubject
from kvproof.spec.verdict import Verdict

JUDGE = "hypothesis"
NUM_EXAMPLES = 500
NUM_STEPS = 50


def hypothesis_stage(
    make: Callable[[], ManagerSubject],
    subject: ManagerSubject,
    saving: Saving,
    share: float,
    examples: int = NUM_EXAMPLES,
    steps: int = NUM_STEPS,
) -> Stage:
    """Drive the state machine of Hypothesis."""
    promised = about_subject(JUDGE, subject)

    def run(stint: Stint) -> Iterator[Said]:
        done = drive(make(), stint.seed, examples=examples, steps=steps, seconds=stint.seconds)
        stint.advance(done.num_steps)
        notes = noted(done.notes, done.num_steps, "operations")
        counts = {"operations": done.num_steps, "runs": done.num_examples}
        outcome = Outcome(Verdict.NOT_REFUTED, counts, done.seconds, refutations=notes)
        if done.finding is not None:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, STOPPED
            outcome.refutations.append(saving.save(JUDGE, done.config, done.operations, done.finding, done.num_steps))
        elif done.is_unsupported:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, "the subject accepted no configuration that was drawn"
        elif not done.num_steps:
            outcome.verdict, outcome.text = Verdict.UNKNOWN, "no step was made"
        yield from decided(JUDGE, promised, outcome)
        yield from met(JUDGE, done.witnesses, {})

    return Stage(JUDGE, share, promised, run)
