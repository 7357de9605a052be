"""The judge of block managers: drives a manager and the specification in lockstep, one operation at a time.

An operation is a tuple of a name and arguments. `apply` returns False if the operation is not enabled in the present
state, so any subsequence of a run is a run. It returns True if the specification explains every answer of the subject,
and raises `Finding` if no rule explains one. Between two steps of the worker operations only queue work; `run` is the
step.

The order inside a step is that of engines: swap in; admit, extend and append; preempt and swap out; then `run`. Forks,
frees and new tokens come between steps.
"""

from typing import NamedTuple

from kvproof.check.oracle.expected import Group, Status
from kvproof.check.oracle.manager.admitting import Admitting
from kvproof.check.oracle.manager.base import GROWING, SWAPPING_IN
from kvproof.check.oracle.manager.releasing import Releasing
from kvproof.check.oracle.manager.stepping import Stepping
from kvproof.check.protocol.adapter_check import check_observation
from kvproof.check.protocol.finding import Finding
from kvproof.spec.trace import Operation


class Limits(NamedTuple):
    """Bounds that a search sets on what it draws; the judge itself bounds only what fits its state."""

    num_groups: float = float("inf")  # at most so many at a time
    num_tokens: float = float("inf")  # of one sequence
    num_members: float = float("inf")  # of one group


NO_LIMITS = Limits()


class ManagerJudge(Admitting, Releasing, Stepping):
    """One opened manager in lockstep with the specification."""

    def apply(self, operation: Operation) -> bool:
        """Do one operation if it is enabled, and return whether it was.

        Raises Finding, and AdapterError if the adapter breaks the protocol.
        """
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

    def enabled(self, limits: Limits = NO_LIMITS) -> dict[str, list[int]]:
        """The kinds of operation that are enabled now, each with the groups or sequences that it may be about.

        `new`, `run` and `reset` are about none. Searches draw from this; the guards of the operations agree with it.
        """
        pending = self.worker.is_pending
        phase = self.phase if pending else GROWING
        may_grow, may_swap_in = phase == GROWING, phase <= SWAPPING_IN and not self.preempted_in_step
        length_max = min(limits.num_tokens, self.num_tokens_max)
        found: dict[str, list[int]] = {}
        if len(self.groups) < limits.num_groups:
            found["new"] = []
        for gid, group in self.groups.items():
            status = group.members[0].status
            if status is Status.RUNNING:
                if may_grow:
                    self._enabled_of_running(found, gid, group, pending, length_max, limits.num_members)
            elif status is Status.WAITING:
                found.setdefault("admit", []).append(gid)
                found.setdefault("lookup", []).append(gid)
            elif may_swap_in:
                found.setdefault("swap_in", []).append(gid)
            if not pending:
                found.setdefault("free", []).extend([seq.id for seq in group.members])
        if pending:
            found["run"] = []
        elif self.capabilities.reset and self.config.caching:
            found["reset"] = []
        return found

    def _enabled_of_running(
        self, found: dict[str, list[int]], gid: int, group: Group, pending: bool, length_max: float, members_max: float
    ) -> None:
        members = group.members
        first = members[0]
        if first.is_busy:
            return
        num_unseen = len(first.tokens) - first.computed
        if not num_unseen:
            if not pending:
                if len(first.tokens) < length_max:
                    found.setdefault("sample", []).append(gid)
                if len(members) < members_max and self.capabilities.fork and self.explainer.free_slots:
                    found.setdefault("fork", []).extend([seq.id for seq in members])
        elif len(first.tokens) > first.num_prompt and num_unseen == 1:
            found.setdefault("append", []).append(gid)
        elif len(members) == 1 and self.config.chunked:
            found.setdefault("extend", []).append(first.id)
        if group.encoder is None and self.config.num_host_blocks:
            found.setdefault("swap_out", []).append(gid)
        if len(members) == 1:
            found.setdefault("preempt", []).append(gid)


def operation_names() -> list[str]:
    """The names of all operations."""
    return [name.removeprefix("op_") for name in dir(ManagerJudge) if name.startswith("op_")]
