"""The passes of the shrinker, cheap ones first: each proposes simpler candidates until none of its own is taken.

Delta debugging takes away slices of operations that are aligned, then settings and arguments become plainer. The later
passes change the structure of a run. A walk reaches a long table token by token: sample, append, run, again and again,
and no token can be taken away without losing the length that the fault needs. So a slice of operations goes, and the
tokens that were sampled in it go to the end of the prompt. A pool that must be full becomes smaller together with the
prompts or holders that fill it.
"""

from collections.abc import Iterator
from dataclasses import replace

from kvproof.check.oracle.level import settings_of, typed
from kvproof.check.protocol.manager import Config
from kvproof.check.search.shrinking.shrinker import Shrinker
from kvproof.spec.trace import Operation

SLICE_MAX = 6
NUM_OPERATIONS_MAX = 60  # of a run in which every slice is tried
PROMPTS = ("new", "add")  # operations whose fourth item is a prompt


def drain_at_once(shrinker: Shrinker) -> None:
    """Replace everything from `stop` on, when no request arrives any more, by one `drain`."""
    operations = shrinker.best.operations
    names = [operation[0] for operation in operations]
    if "stop" in names:
        at = names.index("stop")
        sampled = [rest[0] for name, *rest in operations[at:] if rest and name in ("launch", "complete")]
        for tokens in ((0,), *sampled[:1]):
            if shrinker.consider_operations([*operations[:at], ("drain", tokens)]):
                return


def fewer_operations(shrinker: Shrinker) -> None:
    """Delta debugging: take away slices, first half of the run, then ever smaller ones."""
    size = max(1, len(shrinker.best.operations) // 2)
    while True:
        at, has_shrunk = 0, False
        while at < len(operations := shrinker.best.operations):
            if shrinker.consider_operations(operations[:at] + operations[at + size :]):
                has_shrunk = True
            else:
                at += size
        if size == 1 and not has_shrunk:
            return
        size = max(1, size // 2)


def plainer_settings(shrinker: Shrinker) -> None:
    """Try the simpler values of each field of the configuration."""
    for setting in settings_of(shrinker.best.config):
        config, operations = shrinker.best.config, shrinker.best.operations
        for value in setting.simpler(config):
            if shrinker.consider(replace(config, **{setting.field: value}), operations):
                break


def simpler_arguments(shrinker: Shrinker) -> None:
    """Try the simpler arguments of each operation."""
    at = 0
    while at < len(operations := shrinker.best.operations):
        for simpler in typed(operations[at]).simpler():
            if shrinker.consider_operations([*operations[:at], simpler.as_tuple(), *operations[at + 1 :]]):
                break
        else:
            at += 1


def without_slices(shrinker: Shrinker) -> None:
    """Take away slices of every short length at every place; the tokens sampled there may go to prompts."""
    size = SLICE_MAX
    while size and len(shrinker.best.operations) <= NUM_OPERATIONS_MAX:
        at = 0
        while at + size <= len(shrinker.best.operations) and not shrinker.is_out_of_time():
            if not any(map(shrinker.consider_operations, without_slice(shrinker.best.operations, at, size))):
                at += 1
        size -= 1


def without_slice(operations: list[Operation], at: int, size: int) -> Iterator[list[Operation]]:
    """The run without a slice: as it is, and with the tokens sampled in the slice at the end of prompts before it."""
    removed, before, after = operations[at : at + size], operations[:at], operations[at + size :]
    yield before + after
    sampled: dict[int, tuple[int, ...]] = {}
    completed: tuple[int, ...] = ()
    for name, *arguments in removed:
        if name == "sample":
            group, tokens = arguments
            sampled[group] = (*sampled.get(group, ()), tokens[0])
        elif name == "complete":
            completed = (*completed, arguments[0][0])
    if sampled:
        yield [_longer(operation, sampled.get(operation[1], ())) for operation in before] + after
    if completed:  # which requests the steps were about is not in the operations: one of them, or all
        requests = [place for place, operation in enumerate(before) if operation[0] == "add"]
        for chosen in [[place] for place in requests] + [requests] * (len(requests) > 1):
            yield [_longer(o, completed) if place in chosen else o for place, o in enumerate(before)] + after


def _longer(operation: Operation, sampled: tuple[int, ...]) -> Operation:
    """The operation with these tokens at the end of its prompt; a request generates as many tokens less."""
    match operation:
        case ("new", group, seqs, tokens, *rest):
            return "new", group, seqs, (*tokens, *sampled), *rest
        case ("add", request, seqs, tokens, max_tokens, *rest):
            return "add", request, seqs, (*tokens, *sampled), max(1, max_tokens - len(sampled)), *rest
    return operation


def fewer_samples(shrinker: Shrinker) -> None:
    """Sample for fewer members of a group: a walk samples for as many as a group may ever have."""
    for at, operation in enumerate(shrinker.best.operations):
        if operation[0] == "sample":
            for count in range(1, len(operation[2])):
                operations = shrinker.best.operations
                fewer = ("sample", operation[1], operation[2][:count])
                if shrinker.consider_operations([*operations[:at], fewer, *operations[at + 1 :]]):
                    break


def smaller_pools(shrinker: Shrinker) -> None:
    """Make a pool smaller together with the prompts or holders that fill it: alone, neither can."""
    config = shrinker.best.config
    num_blocks = max(config.num_gpu_blocks, config.num_host_blocks)
    while num_blocks:
        candidates = with_fewer_blocks(shrinker.best.config, shrinker.best.operations, num_blocks)
        if not any(shrinker.consider(*candidate) for candidate in candidates):
            num_blocks //= 2


def with_fewer_blocks(
    config: Config, operations: list[Operation], num_blocks: int
) -> Iterator[tuple[Config, list[Operation]]]:
    """The run with so many blocks less, and what fills the pool cut by as much: one operation, or all."""
    filling = [at for at, operation in enumerate(operations) if operation[0] in (*PROMPTS, "take", "store", "reuse")]
    for gpu, host in ((num_blocks, num_blocks), (num_blocks, 0), (0, num_blocks)):
        if gpu >= config.num_gpu_blocks or host > config.num_host_blocks:
            continue
        smaller = replace(
            config, num_gpu_blocks=config.num_gpu_blocks - gpu, num_host_blocks=config.num_host_blocks - host
        )
        for chosen in [filling, *([at] for at in filling if len(filling) > 1)]:
            yield smaller, [_cut(o, config, num_blocks) if at in chosen else o for at, o in enumerate(operations)]


def _cut(operation: Operation, config: Config, num_blocks: int) -> Operation:
    """The operation, so that it fills so many blocks less; at least one token, page or block is left."""
    match operation:
        case ("new" | "add" as name, number, seqs, tokens, *rest):
            num_tokens = -(-num_blocks // len(config.kv_groups)) * config.block_size
            return name, number, seqs, tokens[: max(1, len(tokens) - num_tokens)], *rest
        case ("store" | "reuse" as name, holder, pages):
            return name, holder, pages[: max(1, len(pages) - num_blocks)]
        case ("take", holder, held):
            return "take", holder, max(1, held - num_blocks)
    return operation


PASSES = (
    drain_at_once,
    fewer_operations,
    plainer_settings,
    simpler_arguments,
    without_slices,
    fewer_samples,
    smaller_pools,
)
