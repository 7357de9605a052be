"""The judge of block managers: drives a manager and the specification in lockstep, one operation at a time.

An operation is a tuple of a name and arguments. `apply` returns False if the operation is not enabled in the present
state, so any subsequence of a run is a run. It returns True if the specification explains every answer of the subject,
and raises `Finding` if no rule explains one. Between two steps of the worker operations only queue work; `run` is the
step.

The order inside a step is that of engines: swap in; admit, extend and append; preempt and swap out; then `run`. Forks,
frees and new tokens come between steps. A manager with a prefix cache that does not declare `steps_are_certain` is also
asked to release what it admitted before the step has computed it, and its steps may fail.

The judge holds one object for each kind of operation (`admitting`, `growing`, `releasing`, `swapping`, `step`) and
one for the questions that come before a call. They share the oracle, which is what is observed and
expected now.
"""

from kvproof.check.oracle.manager.judge import ManagerJudge as ManagerJudge
