"""Shorter than the minimiser: steps that only lead up to something become a longer prompt.

A walk reaches a long table token by token: sample, append, run, again and again. Delta debugging cannot take a token
away without losing the length that the fault needs. Here a slice of operations goes, and the tokens that were sampled
in it go to the end of the prompt of their group; and slices of any length and place go, which delta debugging tries
only where they are aligned. A pool that must be full is made smaller together with the prompts that fill it. Runs of
the minimiser and of this alternate until nothing helps.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from time import monotonic

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.search.manager_operations import walk
from kvproof.check.search.random_walk import WalkOptions
from kvproof.check.search.shrinking.delta_debugging import Minimiser
from kvproof.spec.trace import Operation

SLICE_MAX = 6
LONG = 8  # operations; more are hard to keep in mind
NUM_WALKED_MAX = 5_000  # operations of one walk that looks for a shorter run
NUM_OPERATIONS_MAX = 60  # of a run in which every slice is tried


class Shortener(Minimiser):
    """A minimiser that also moves sampled tokens into prompts."""

    def run(self, seconds: float) -> None:
        """Shorten until nothing helps or time is up."""
        end = monotonic() + seconds
        while True:
            super().run(end - monotonic())
            before = self.config, self.operations
            self.deadline = end
            self._without_slices()
            self._fewer_samples()
            self._smaller_pools()
            if (self.config, self.operations) == before or self.is_out_of_time():
                return

    def _without_slices(self) -> None:
        size = SLICE_MAX
        while size and len(self.operations) <= NUM_OPERATIONS_MAX:
            at = 0
            while at + size <= len(self.operations) and not self.is_out_of_time():
                if not any(self.accepts(self.config, shorter) for shorter in without_slice(self.operations, at, size)):
                    at += 1
            size -= 1

    def _fewer_samples(self) -> None:
        """A walk samples for as many members as a group may ever have."""
        for at, operation in enumerate(self.operations):
            if operation[0] == "sample":
                for count in range(1, len(operation[2])):
                    fewer = ("sample", operation[1], operation[2][:count])
                    if self.accepts(self.config, [*self.operations[:at], fewer, *self.operations[at + 1 :]]):
                        break

    def _smaller_pools(self) -> None:
        """A pool that must be full needs prompts that fill it: both grow smaller together, or neither can."""
        num_blocks = max(self.config.num_gpu_blocks, self.config.num_host_blocks)
        while num_blocks:
            candidates = smaller_pools(self.config, self.operations, num_blocks)
            if not any(self.accepts(config, operations) for config, operations in candidates):
                num_blocks //= 2


def smaller_pools(
    config: Config, operations: list[Operation], num_blocks: int
) -> Iterator[tuple[Config, list[Operation]]]:
    """The run with so many blocks less, and prompts that are shorter by as much: one of them, or all."""
    prompts = [at for at, operation in enumerate(operations) if operation[0] == "new"]
    num_tokens = -(-num_blocks // len(config.kv_groups)) * config.block_size
    for gpu, host in ((num_blocks, num_blocks), (num_blocks, 0), (0, num_blocks)):
        if gpu >= config.num_gpu_blocks or host > config.num_host_blocks:
            continue
        smaller = replace(
            config, num_gpu_blocks=config.num_gpu_blocks - gpu, num_host_blocks=config.num_host_blocks - host
        )
        for cut in [prompts, *([at] for at in prompts if len(prompts) > 1)]:
            yield (
                smaller,
                [_without_end(operation, num_tokens if at in cut else 0) for at, operation in enumerate(operations)],
            )


def _without_end(operation: Operation, num_tokens: int) -> Operation:
    if not num_tokens:
        return operation
    name, group, seqs, tokens, *rest = operation
    return name, group, seqs, tokens[: max(1, len(tokens) - num_tokens)], *rest


def without_slice(operations: list[Operation], at: int, size: int) -> Iterator[list[Operation]]:
    """The run without a slice: as it is, and with the tokens sampled there at the end of prompts before it."""
    slice_, before, after = operations[at : at + size], operations[:at], operations[at + size :]
    if size > 1:  # the minimiser has tried single ones
        yield before + after
    sampled: dict[int, tuple[int, ...]] = {}
    for operation in slice_:
        if operation[0] == "sample":
            group, tokens = operation[1:]
            sampled[group] = (*sampled.get(group, ()), tokens[0])
    if sampled:
        yield [_longer(operation, sampled) for operation in before] + after


def _longer(operation: Operation, sampled: dict[int, tuple[int, ...]]) -> Operation:
    if operation[0] != "new" or operation[1] not in sampled:
        return operation
    name, group, seqs, tokens, *rest = operation
    return name, group, seqs, (*tokens, *sampled[group]), *rest


def shorten(
    make: Callable[[], ManagerSubject], config: Config, operations: list[Operation], finding: Finding, seconds: float
) -> tuple[Config, list[Operation], Finding]:
    """The shortest run found within `seconds` that refutes the same property in the same way."""
    shortener = Shortener(make, config, list(operations), finding)
    shortener.run(seconds)
    return shortener.config, shortener.operations, shortener.finding


def shortest(
    make: Callable[[], ManagerSubject],
    config: Config,
    operations: list[Operation],
    finding: Finding,
    seed: int,
    seconds: float,
    long: int = LONG,
    walks: int | None = None,
) -> tuple[Config, list[Operation], Finding]:
    """Shorten; while the run has more than `long` operations, walk anew to the same kind of finding, and take the best.

    Where a walk first meets a fault decides what delta debugging can make of it. Half of the new walks are in the
    configuration that is left, which is small, and half in any. walks: how many there are at most; counted and not
    timed, a run repeats on a slower machine.
    """
    deadline = monotonic() + seconds
    best = shorten(make, config, operations, finding, seconds)
    last = None if walks is None else seed + walks
    while len(best[1]) > long and seed != last and (left := deadline - monotonic()) > 0:
        seed += 1
        fixed = asdict(best[0]) if seed % 2 else None
        options = WalkOptions(wanted=finding.kind)
        done = walk(make(), seed, max_operations=NUM_WALKED_MAX, seconds=left, fixed=fixed, options=options)
        if done.finding is not None:
            other = shorten(make, done.config, done.operations, done.finding, deadline - monotonic())
            best = min(best, other, key=lambda run: len(run[1]))
    return best
