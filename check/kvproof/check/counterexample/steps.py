"""A run told to people: one line for each operation, with what the subject answered and which tables changed.

Groups and sequences go by their numbers, tokens are shown one by one, host blocks are marked as such, and nothing is
left out. The left column is what the engine asks for, the right one what the manager made of it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvproof.check.oracle.replay import Call, ReplayResult, replay
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Config, ManagerSubject, Observation, Scheduled
from kvproof.spec.text.identity import Image, Key
from kvproof.spec.trace import Operation

COLUMN_MAX = 44
NOT_ENABLED = "(not possible here, passed over)"
NOT_REACHED = "(not reached)"


def describe_steps(
    make: Callable[[], ManagerSubject], config: Config, operations: Sequence[Operation], finding: Finding | None = None
) -> list[str]:
    """The steps of a run on a fresh subject, without numbers. Raises Unsupported, and AdapterError."""
    return steps_of(replay(make, config, operations, finding), config, operations)


def steps_of(done: ReplayResult, config: Config, operations: Sequence[Operation]) -> list[str]:
    """The steps of a run that was done."""
    calls = [call_of(operation, config) for operation in operations]
    answers = _answers(done, config)
    answers += [NOT_REACHED] * (len(calls) - len(answers))
    width = min(COLUMN_MAX, max((len(c) for c, a in zip(calls, answers, strict=True) if a), default=0))
    return [f"{c:<{width}}   {a}".rstrip() for c, a in zip(calls, answers, strict=True)]


# What is asked ----------------------------------------------------------------------------------------------------


def call_of(operation: Operation, config: Config) -> str:
    """An operation as a call."""
    match operation:
        case ("new", group, seqs, tokens, *more):
            return f"new(group {group}, {_named(seqs)}, {_tokens(tokens)}{_extras(more)})"
        case ("admit", group, chunk) if config.chunked:
            return f"admit(group {group}, at most {_count(chunk, 'token')})"
        case ("admit", group, _):
            return f"admit(group {group})"
        case ("extend", seq, num_tokens):
            return f"extend(sequence {seq}, {_count(num_tokens, 'token')})"
        case ("sample", group, tokens):
            return f"sample(group {group}, {_tokens(tokens)})"
        case ("fork", parent, child):
            return f"fork(sequence {parent}, into {child})"
        case ("free", seq):
            return f"free(sequence {seq})"
        case ("add", request, seqs, tokens, max_tokens, *more):
            wanted = f"generates {_count(max_tokens, 'token')}"
            return (
                f"add(request {request}, {_named(seqs)}, {_tokens(tokens)}{_extras(more)}, {wanted}{_elsewhere(more)})"
            )
        case ("abort", request):
            return f"abort(request {request})"
        case ("launch", tokens):
            return f"launch({_results(tokens)})"
        case ("drain", tokens):
            return f"drain({_results(tokens)})"
        case ("complete", tokens, *more):
            return f"complete({_results(tokens, *more)})"
        case ("take", holder, num_blocks):
            return f"take(holder {holder}, {_count(num_blocks, 'block')})"
        case ("store" | "reuse" as name, holder, pages):
            return f"{name}(holder {holder}, pages {' '.join(map(str, pages))})"
        case ("find", pages):
            return f"find(pages {' '.join(map(str, pages))})"
        case ("share", parent, child):
            return f"share(holder {parent}, with {child})"
        case ("give", holder, *others):
            together = [holder, *(other for named in others for other in named)]
            return f"give(holder{'s' if len(together) > 1 else ''} {', '.join(map(str, together))})"
        case ("run", tick):
            return f"run(after {tick} s)" if tick else "run()"
        case (name, group):
            return f"{name}(group {group})"
        case (name, *arguments):
            return f"{name}({', '.join(str(argument) for argument in arguments)})"
    return str(operation)


def _named(seqs: Iterable[int]) -> str:
    numbers = [str(seq) for seq in seqs]
    return f"sequence {numbers[0]}" if len(numbers) == 1 else f"sequences {' and '.join(numbers)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _tokens(tokens: Sequence[int]) -> str:
    if len(tokens) > 2 and len(set(tokens)) == 1:
        return f"{len(tokens)} tokens, all {tokens[0]}"
    return f"{_count(len(tokens), 'token')}: {' '.join(str(token) for token in tokens)}"


def _elsewhere(more: Sequence[Any]) -> str:
    num_tokens, is_sent = more[3] if len(more) > 3 else (0, False)
    said = f", {_count(num_tokens, 'token')} from elsewhere" if num_tokens else ""
    return said + (", sent when over" if is_sent else "")


def _results(
    tokens: Sequence[int],
    forks: Sequence[Sequence[int]] = (),
    stops: Sequence[int] = (),
    arrivals: Sequence[int] = (),
) -> str:
    """What the model gives back; tokens go to the sequences that sample, in turn."""
    said = [f"samples {' '.join(str(token) for token in tokens)}"]
    said += [f"forks sequence {parent} into {child}" for parent, child in forks]
    said += [f"ends sequence {seq}" for seq in stops]
    said += [f"the transfer of sequence {seq} is over" for seq in arrivals]
    return ", ".join(said)


def _extras(more: Sequence[Any]) -> str:
    key, images, encoder = (more[place] if place < len(more) else () for place in range(3))
    whole, said = Key(*key), []
    if whole.adapter_id:
        said.append(f"adapter {whole.adapter_name} with id {whole.adapter_id}")
    if whole.salt:
        said.append(f"salt {whole.salt}")
    for image in (Image(*each) for each in images):
        said.append(f"image {image.name} in {_count(image.length, 'position')} from {image.start}")
    if encoder:
        said.append(f"encoder sequence {encoder[0]} of {_tokens(encoder[1])}")
    return "".join(f", {each}" for each in said)


# What came of it --------------------------------------------------------------------------------------------------


def _answers(done: ReplayResult, config: Config) -> list[str]:
    first = _last_shown(done.opening)
    tables = first.tables if first else {}
    answers = []
    for step in done.steps:
        if not step.is_enabled:
            answers.append(NOT_ENABLED)
            continue
        said = [step.answer] if step.answer else []
        said += [_scheduled(call.arguments[0]) for call in step.calls if call.name == "step_scheduled"]
        seen = _last_shown(step.calls)
        if seen is not None:
            said += _changes(tables, seen.tables, config)
            tables = seen.tables
        answers.append("; ".join(said))
    return answers


def _last_shown(calls: Iterable[Call]) -> Observation | None:
    shown = [c.answer for c in calls if isinstance(c.answer, Observation) and isinstance(c.answer.tables, dict)]
    return shown[-1] if shown else None


def _scheduled(step: Iterable[Scheduled]) -> str:
    computed = [f"{_count(s.num_tokens, 'token')} of sequence {s.seq}" for s in step if s.num_tokens]
    return f"computes {', '.join(computed)}" if computed else "moves blocks only"


def _changes(before: dict[int, list[list[int]]], after: dict[int, list[list[int]]], config: Config) -> list[str]:
    """The tables that a call gave or changed."""
    shown = []
    for seq, tables in after.items():
        if tables != before.get(seq) and (tables or seq in before):
            told = [_blocks(table, config) for table in tables or [[]]]
            further = [f", KV group {number}: {blocks}" for number, blocks in enumerate(told[1:], 1)]
            shown.append(f"sequence {seq}: {told[0]}{''.join(further)}")
    return shown


def _blocks(table: Sequence[int], config: Config) -> str:
    first_host = config.num_gpu_blocks
    words = ["null" if b == NULL_BLOCK else f"host {b - first_host}" if b >= first_host else str(b) for b in table]
    return f"block{'s' if len(table) != 1 else ''} {', '.join(words)}" if words else "no block"
