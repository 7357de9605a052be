"""Lockstep: drive a subject and the specification side by side, one operation at a time.

An operation is a tuple of a name and arguments. `apply` gives False when the operation is not enabled in the present
truth (so any subsequence of a trace is a trace), True when every answer of the subject was explained, and raises
`Finding` when no rule explains one. Between two steps of the worker, operations only queue work; `run` is the step.

Order inside a step, as engines do it: swap in; admit, extend and append; preempt and swap out; then `run`. Forks, frees
and new tokens come between steps.
"""

from kvproof.check.oracle.manager.admitting import Admitting
from kvproof.check.oracle.manager.releasing import Releasing
from kvproof.check.oracle.manager.stepping import Stepping
from kvproof.check.protocol.adapter_check import check_observation
from kvproof.check.protocol.finding import Finding
from kvproof.spec.trace import Operation


class ManagerJudge(Admitting, Releasing, Stepping):
    """One opened subject in lockstep with the specification."""

    def apply(self, operation: Operation) -> bool:
        """Do one operation; raises Finding, or AdapterError if the adapter breaks the protocol."""
        handler = getattr(self, f"op_{operation[0]}", None)
        if handler is None:
            raise ValueError(f"there is no operation {operation[0]!r}; there are {', '.join(operation_names())}")
        self.answer = ""
        try:
            return handler(*operation[1:])  # type: ignore[no-any-return]
        except Finding:
            check_observation(self.explainer.observed, len(self.config.kv_groups))
            raise
        except (TypeError, AttributeError, IndexError, KeyError) as error:
            check_observation(self.explainer.observed, len(self.config.kv_groups))
            raise AssertionError(f"the judge failed in {operation}: {type(error).__name__}: {error}") from error


def operation_names() -> list[str]:
    """The names of all operations."""
    return [name.removeprefix("op_") for name in dir(ManagerJudge) if name.startswith("op_")]
