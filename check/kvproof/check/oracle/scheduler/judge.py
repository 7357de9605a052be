"""The loop in lockstep: drive a scheduler step by step, play its model, and explain everything that it does.

An operation is a tuple of a name and arguments, as at manager level: `apply` gives False when the operation is not
enabled in the present truth (so any subsequence of a trace is a trace), True when everything was explained, and raises
`Finding` when it cannot be. A step is schedule, launch, complete; requests are added and aborted between any two.
"""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.scheduler.drain import Draining
from kvproof.check.protocol.adapter_check import check_observation
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import Step
from kvproof.spec.trace import Operation

OPERATIONS = ("add", "abort", "stop", "schedule", "launch", "complete", "drain")
COMPLETED = "complete()"


class SchedulerJudge(Draining):
    """One opened scheduler in lockstep with the specification."""

    @property
    def answer(self) -> str:
        """What the last operation gave, for people; a step is told only to who asks."""
        return self._answer if self.scheduled is None else _told(self.scheduled)

    @answer.setter
    def answer(self, text: str) -> None:
        self._answer = text

    def apply(self, operation: Operation) -> bool:
        """Do one operation; raises Finding, or AdapterError if the adapter breaks the protocol."""
        if operation[0] not in OPERATIONS:
            raise ValueError(f"there is no operation {operation[0]!r}; there are {', '.join(OPERATIONS)}")
        self.answer, self.scheduled = "", None
        try:
            return getattr(self, f"op_{operation[0]}")(*operation[1:])  # type: ignore[no-any-return]
        except Finding:
            check_observation(self.explainer.observed, len(self.config.kv_groups))
            raise
        except (TypeError, AttributeError, IndexError, KeyError) as error:
            check_observation(self.explainer.observed, len(self.config.kv_groups))
            raise AssertionError(f"the judge failed in {operation}: {type(error).__name__}: {error}") from error

    def _given_up(self, context: str, touched: Sequence[ExpectedSequence] = ()) -> None:
        """When a step is complete, blocks that it filled may also give way to cached ones of equal content."""
        if not (self.capabilities.dedups_after_step and context == COMPLETED):
            super()._given_up(context, touched)
            return
        running = [seq for seq in self.seqs.values() if seq.status is Status.RUNNING and seq.slot >= 0]
        super()._given_up(context, [*touched, *running])
        for seq in running:
            if seq.slot >= 0:
                self.explainer.exchanged(seq, context)


def _told(step: Step) -> str:
    said = [f"sequence {c.seq}: {c.start} to {c.stop}" + (f", hit {c.hit}" if c.hit else "") for c in step.chunks]
    said += [f"sequence {load.seq}: loads {load.hit} to {load.stop}" for load in step.loads]
    for name in ("swap_in", "swap_out", "copies", "ignored", "failed"):
        if getattr(step, name):
            said.append(f"{name.replace('_', ' ')} {list(getattr(step, name))}")
    return "; ".join(said) or "nothing"
