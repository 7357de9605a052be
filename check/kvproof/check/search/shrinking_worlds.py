"""Passes of the shrinker for runs of large worlds: smaller blocks, fewer blocks, shorter prompts, plainer values.

A setting alone often cannot become smaller: with smaller blocks a prompt needs more of them. So the whole run is
written again for blocks of another size: of each block of a prompt as many slots are kept as the new size has, the
first ones or the last ones. Each candidate is one replay, and there are few, since they come before the passes that
take operations away and make those faster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.features import smaller_sizes
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.operations import clipped
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search.worlds import BLOCK_SIZES, has_large_sizes
from kvproof.spec.trace import Operation


def smaller_worlds(shrinker: Any) -> None:
    """Try the run with smaller blocks, with fewer blocks, and with the first numbers as values."""
    if has_large_sizes(shrinker.best.config):
        for size in smaller_sizes(1, shrinker.best.config.block_size):
            if any(shrinker.consider(*one) for one in with_block_size(*run_of(shrinker), size)):
                break
        for num_blocks in smaller_sizes(1, shrinker.best.config.num_gpu_blocks):
            config, operations = run_of(shrinker)
            num_host_blocks = min(config.num_host_blocks, num_blocks)
            if shrinker.consider(
                replace(config, num_gpu_blocks=num_blocks, num_host_blocks=num_host_blocks), operations
            ):
                break
    shrinker.consider_operations(with_first_numbers(shrinker.best.operations))


def run_of(shrinker: Any) -> tuple[Config, list[Operation]]:
    """The configuration and the operations of the best run."""
    return shrinker.best.config, shrinker.best.operations


def with_block_size(
    config: Config, operations: Sequence[Operation], size: int
) -> Iterator[tuple[Config, list[Operation]]]:
    """The run for blocks of so many slots; of the tokens of a block the first are kept, or the last."""
    old = config.block_size

    def length(num_tokens: int) -> int:
        return num_tokens // old * size + min(num_tokens % old, size)

    def shorter(tokens: Sequence[int], is_last: bool) -> tuple[int, ...]:
        kept: list[int] = []
        for begin in range(0, len(tokens), old):
            block = tokens[begin : begin + old]
            kept += block[-size:] if is_last else block[:size]
        return tuple(kept)

    def pictures(images: Sequence[tuple[str, int, int]], num_tokens: int) -> tuple[tuple[str, int, int], ...]:
        scaled = [(name, length(at), max(1, length(at + rows) - length(at))) for name, at, rows in images]
        return clipped(scaled, num_tokens)

    def rewritten(operation: Operation, is_last: bool) -> Operation:
        match operation:
            case ("new", group, seqs, tokens, *rest):
                kept = shorter(tokens, is_last)
                return "new", group, seqs, kept, *with_pictures(rest, 1, len(kept))[:3], *map(length, rest[3:])
            case ("add", request, seqs, tokens, max_tokens, *rest):
                kept = shorter(tokens, is_last)
                return "add", request, seqs, kept, max_tokens, *with_pictures(rest, 1, len(kept))
            case ("admit" | "extend" as name, about, num_tokens):
                return name, about, max(1, length(num_tokens))
        return operation

    def with_pictures(rest: list[Any], place: int, num_tokens: int) -> list[Any]:
        return [pictures(item, num_tokens) if n == place and item else item for n, item in enumerate(rest)]

    fields: dict[str, Any] = {"block_size": size}
    if config.window:
        fields["window"] = max(1, length(config.window))
    if any(":" in group for group in config.kv_groups):
        sizes = [max(1, of_group * size // old) for of_group in config.block_sizes]
        fields["kv_groups"] = tuple(
            f"{kind}:{of_group}" if of_group != size else kind
            for kind, of_group in zip(config.kinds, sizes, strict=True)
        )
    if config.local_chunk:
        fields["local_chunk"] = max(1, config.local_chunk // config.block_size) * size
    if config.retention:
        fields["retention"] = max(1, config.retention // config.block_size) * size
    if isinstance(config, SchedulerConfig):
        fields["max_model_len"] = max(1, length(config.max_model_len))
    smaller = replace(config, **fields)
    for is_last in (False, True):
        yield smaller, [rewritten(operation, is_last) for operation in operations]


PLACES_OF_VALUES = {"new": 3, "add": 3, "sample": 2, "launch": 1, "complete": 1, "store": 2, "reuse": 2, "find": 1} | {
    "look_up": 2,
    "touch": 2,
    "begin_store": 3,
    "begin_load": 3,
}


def with_first_numbers(operations: Sequence[Operation]) -> list[Operation]:
    """The run with 0, 1, 2 and so on for its different tokens, pages or keys, in the order of their sizes."""
    values = {
        value
        for operation in operations
        if (place := PLACES_OF_VALUES.get(operation[0])) and place < len(operation)
        for value in operation[place]
    }
    number_of = {value: number for number, value in enumerate(sorted(values))}

    def rewritten(operation: Operation) -> Operation:
        place = PLACES_OF_VALUES.get(operation[0])
        if not place or place >= len(operation):
            return operation
        return *operation[:place], tuple(number_of[value] for value in operation[place]), *operation[place + 1 :]

    return [rewritten(operation) for operation in operations]


def sizes_needed(config: Config) -> str:
    """What a report says about a finding that no small world showed; empty if a small one did."""
    needed = []
    if config.block_size > max(BLOCK_SIZES):
        needed.append(f"a block of {config.block_size} slots")
    if has_large_sizes(replace(config, block_size=1)):
        needed.append(f"{max(config.num_gpu_blocks, config.num_host_blocks)} blocks")
    return f"needs {' and '.join(needed)}: no smaller world that was tried shows it" if needed else ""
