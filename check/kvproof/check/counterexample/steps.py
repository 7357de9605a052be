"""A run as text and as frames.

The text has one line for each operation, with the answer of the subject and the tables that changed. Groups and
sequences are named by their numbers, tokens are listed one by one, host blocks are marked, and nothing is left out. The
left column is the call of the engine, the right one what the manager did. There is one frame after each step, drawn by
the level (`Level.frame`); the step adds what it copied, and the judge what else would be possible.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from kvproof.check.counterexample.trace_schema import CounterexampleError, config_of, operations_of
from kvproof.check.oracle.enabled import OperationJudge
from kvproof.check.oracle.level import level_of_config, typed
from kvproof.check.oracle.replay import ReplayedStep, ReplayResult, SubjectCall, replay
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Config, ManagerSubject, Observation, Scheduled, Unsupported
from kvproof.check.protocol.operations import WORDS, count
from kvproof.reports.frames import Choice, Move, ReplayFrames, StepFrame
from kvproof.spec.trace import Operation, Trace

COLUMN_MAX = 44
NUMBERS_SHOWN = 8  # of those that an operation may be about
NOT_ENABLED = "(not possible here, passed over)"
NOT_REACHED = "(not reached)"
ID_FIRST, IDS = re.compile(r"(\w+)\(\d+[,)]"), {"group": "group", "seq": "sequence"}  # a call, and names of parameters
ARGUMENTS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"  # in parentheses, which may hold tuples of tuples


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


def narrated(finding: Finding, config: Config, operations: Sequence[Operation]) -> str:
    """The text of a finding in which the operations ended, in the words of the steps, and its two values side by side.

    A text that begins with the last operation as the judge calls it, `admit(7, 1)`, begins with its step instead,
    `admit(group 7)`. In another call of a manager, such as `hits(7)`, the number is named: `hits(group 7)`. A
    question comes first if its answer was wrong.
    """
    text = finding.text
    if operations and (call := re.match(rf"{operations[-1][0]}{ARGUMENTS}", text)):
        text = f"{typed(operations[-1]).text(config)}{text[call.end() :]}"
    else:
        text = _with_named_id(text)
    if finding.promise:
        text = f"{_with_named_id(finding.promise)} said OK, but {text}"
    return f"{text}\n{finding.comparison}".rstrip()


def _with_named_id(text: str) -> str:
    """A text that begins with a call of a manager, in which the number is named."""
    call = ID_FIRST.match(text)
    method = getattr(ManagerSubject, call[1], None) if call else None
    word = IDS.get(list(signature(method).parameters)[1]) if method else None
    return f"{call[1]}({word} {text[call.end(1) + 1 :]}" if call and word else text


# What the subject did ----------------------------------------------------------------------------------------------


def _answers(done: ReplayResult, config: Config) -> list[str]:
    first = _last_observation(done.calls_of_open)
    tables = first.tables if first else {}
    answers = []
    for step in done.steps:
        if not step.is_enabled:
            answers.append(NOT_ENABLED)
            continue
        parts = [step.answer] if step.answer else []
        verb = "was to compute" if step.operation[0] == "fail" else "computes"
        parts += [_scheduled(call.arguments[0], verb) for call in step.calls if call.name == "step_scheduled"]
        observed = _last_observation(step.calls)
        if observed is not None:
            parts += _changes(tables, observed.tables, config)
            tables = observed.tables
        answers.append("; ".join(parts))
    return answers


def _last_observation(calls: Iterable[SubjectCall]) -> Observation | None:
    observed = [c.answer for c in calls if isinstance(c.answer, Observation) and isinstance(c.answer.tables, dict)]
    return observed[-1] if observed else None


def _scheduled(step: Iterable[Scheduled], verb: str) -> str:
    computed = [f"{count(s.num_tokens, 'token')} of sequence {s.seq}" for s in step if s.num_tokens]
    return f"{verb} {', '.join(computed)}" if computed else "moves blocks only"


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
    words = [_name(block, config) for block in table]
    return f"block{'s' if len(table) != 1 else ''} {', '.join(words)}" if words else "no block"


def _name(block: int, config: Config) -> str:
    if block == NULL_BLOCK:
        return "null"
    host_block = block - config.num_gpu_blocks
    if 0 <= block and host_block < config.num_host_blocks:
        return f"host {host_block}" if host_block >= 0 else str(block)
    return f"{block} (out of range)"


def replay_frames(
    make: Callable[[], ManagerSubject], trace: Trace, path: Path, finding: Finding | None = None
) -> ReplayFrames:
    """Replay the trace on a fresh subject. finding: what is expected; a hang is not waited for as long again."""
    try:
        config, operations = config_of(trace, path), operations_of(trace, path)
        recorder = FrameRecorder(config)
        done = replay(make, config, operations, finding, recorder.take)
    except (CounterexampleError, Unsupported, AdapterError, AssertionError) as error:
        return ReplayFrames(problem=str(error))
    if done.is_out_of_time:
        return ReplayFrames(problem="the time of the run was over before it was repeated")
    if not recorder.frames:
        return ReplayFrames(problem=done.finding.text if done.finding else "the subject did not open")
    outcome = "nothing is refuted."
    if done.finding is not None:
        recorder.mark(done.finding)
        text = narrated(done.finding, config, operations[: len(done.steps)])
        outcome = f"{done.finding.property} is refuted at step {len(done.steps)}: {text}"
    steps = ["open", *steps_of(done, config, operations[: len(done.steps)])]
    frames = [replace(frame, step=step) for frame, step in zip(recorder.frames, steps, strict=True)]
    for number, step in enumerate(done.steps, 1):
        moves = (*frames[number].moves, *_moves(step, config.num_gpu_blocks))
        taken = tuple(one._replace(is_next=one.name == step.operation[0]) for one in frames[number - 1].choices)
        frames[number] = replace(frames[number], moves=moves)
        frames[number - 1] = replace(frames[number - 1], choices=taken)
    return ReplayFrames(
        frames, outcome, done.finding is not None, "", config.num_gpu_blocks, config.num_host_blocks, config.block_size
    )


def _moves(step: ReplayedStep, num_gpu_blocks: int) -> Iterator[Move]:
    """The copies and swaps of a step, as the subject answered them; pairs that cannot be drawn are left out."""
    for call in step.calls:
        answer = call.answer
        forked = answer[1:2] if call.name == "forked" and isinstance(answer, list | tuple) else ()
        for kind, pairs in (
            ("copy", getattr(answer, "copies", next(iter(forked), ()))),
            ("swap out", answer if call.name == "swap_out" else getattr(answer, "swap_out", ())),
            ("swap in", answer if call.name == "swap_in" else getattr(answer, "swap_in", ())),
        ):
            for pair in pairs if isinstance(pairs, list | tuple) else ():
                if isinstance(pair, list | tuple) and len(pair) == 2 and all(type(block) is int for block in pair):
                    source, target = pair
                    source += num_gpu_blocks if kind == "swap in" else 0
                    target += num_gpu_blocks if kind == "swap out" else 0
                    yield Move(kind, source, target)


def _choices(judge: OperationJudge) -> Iterator[Choice]:
    """The kinds of operation that the judge could do now."""
    for name, numbers in judge.enabled().items():
        first, *_ = (*judge.kinds[name].__struct_fields__, "")
        more = f" and {len(numbers) - NUMBERS_SHOWN} more" if len(numbers) > NUMBERS_SHOWN else ""
        listed = ", ".join(map(str, numbers[:NUMBERS_SHOWN]))
        yield Choice(name, f"{WORDS.get(first, first)} {listed}{more}" if numbers else "")


class FrameRecorder:
    """Takes a frame after each step."""

    def __init__(self, config: Config) -> None:
        self.draw = level_of_config(config).frame
        self.frames: list[StepFrame] = []
        self._judge: Any = None

    def take(self, judge: Any) -> None:
        """One frame of the judge as it is now."""
        self._judge = judge
        self.frames.append(replace(self.draw(judge, None), choices=tuple(_choices(judge))))

    def mark(self, finding: Finding) -> None:
        """In the last frame, compare with what the subject showed when the finding was made."""
        if self._judge is not None:
            self.frames[-1] = self.draw(self._judge, finding)
