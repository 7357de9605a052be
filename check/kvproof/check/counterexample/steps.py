"""A run as text: one line for each operation, with the answer of the subject and the tables that changed.

Groups and sequences are named by their numbers, tokens are listed one by one, host blocks are marked, and nothing is
left out. The left column is the call of the engine, the right one what the manager did.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvproof.check.oracle.level import typed
from kvproof.check.oracle.replay import Call, ReplayResult, replay
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Config, Observation, Scheduled
from kvproof.check.protocol.operations import count
from kvproof.spec.trace import Operation

COLUMN_MAX = 44
NOT_ENABLED = "(not possible here, passed over)"
NOT_REACHED = "(not reached)"


def describe_steps(
    make: Callable[[], Any], config: Config, operations: Sequence[Operation], finding: Finding | None = None
) -> list[str]:
    """The steps of a run on a fresh subject, without numbers. Raises Unsupported, and AdapterError.

    finding: what an earlier run found, as for `replay`.
    """
    return steps_of(replay(make, config, operations, finding), config, operations)


def steps_of(done: ReplayResult, config: Config, operations: Sequence[Operation]) -> list[str]:
    calls = [typed(operation).text(config) for operation in operations]
    answers = _answers(done, config)
    answers += [NOT_REACHED] * (len(calls) - len(answers))
    width = min(COLUMN_MAX, max((len(c) for c, a in zip(calls, answers, strict=True) if a), default=0))
    return [f"{c:<{width}}   {a}".rstrip() for c, a in zip(calls, answers, strict=True)]


# What the subject did ----------------------------------------------------------------------------------------------


def _answers(done: ReplayResult, config: Config) -> list[str]:
    first = _last_observation(done.opening)
    tables = first.tables if first else {}
    answers = []
    for step in done.steps:
        if not step.is_enabled:
            answers.append(NOT_ENABLED)
            continue
        parts = [step.answer] if step.answer else []
        parts += [_scheduled(call.arguments[0]) for call in step.calls if call.name == "step_scheduled"]
        observed = _last_observation(step.calls)
        if observed is not None:
            parts += _changes(tables, observed.tables, config)
            tables = observed.tables
        answers.append("; ".join(parts))
    return answers


def _last_observation(calls: Iterable[Call]) -> Observation | None:
    observed = [c.answer for c in calls if isinstance(c.answer, Observation) and isinstance(c.answer.tables, dict)]
    return observed[-1] if observed else None


def _scheduled(step: Iterable[Scheduled]) -> str:
    computed = [f"{count(s.num_tokens, 'token')} of sequence {s.seq}" for s in step if s.num_tokens]
    return f"computes {', '.join(computed)}" if computed else "moves blocks only"


def _changes(before: dict[int, list[list[int]]], after: dict[int, list[list[int]]], config: Config) -> list[str]:
    """The tables that a call created or changed."""
    changes = []
    for seq, tables in after.items():
        if tables != before.get(seq) and (tables or seq in before):
            listed = [_blocks(table, config) for table in tables or [[]]]
            further = [f", KV group {number}: {blocks}" for number, blocks in enumerate(listed[1:], 1)]
            changes.append(f"sequence {seq}: {listed[0]}{''.join(further)}")
    return changes


def _blocks(table: Sequence[int], config: Config) -> str:
    first_host = config.num_gpu_blocks
    words = ["null" if b == NULL_BLOCK else f"host {b - first_host}" if b >= first_host else str(b) for b in table]
    return f"block{'s' if len(table) != 1 else ''} {', '.join(words)}" if words else "no block"
