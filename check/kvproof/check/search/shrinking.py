"""Shrinking: from a counterexample to a shorter and simpler one that refutes the same property in the same way.

`sort_key` says which of two runs is simpler, and `Shrinker.consider` decides on one candidate. Everything else is ideas
for candidates, which are passes (`PASSES`): they need not be sound or cheap to check, because a candidate counts only
if it refutes the same property and, for an exception, in the same call and with the same type. Without that, shrinking
slides from one fault to another. No candidate is run twice, so a pass may propose again what another one proposed
before.

Every accepted candidate is strictly simpler than the one before, and no run has infinitely many simpler ones, so
shrinking ends. The same passes serve all levels.

Delta debugging takes away slices of operations that are aligned, then settings and arguments become plainer. The later
passes change the structure of a run. A walk reaches a long table token by token: sample, append, run, again and again,
and no token can be taken away without losing the length that the fault needs. So a slice of operations goes, and the
tokens that were sampled in it go to the end of the prompt. A pool that must be full becomes smaller together with the
prompts or holders that fill it.

The place at which a walk first meets a fault limits how short shrinking can make its run. While the run is long, other
walks look for the same kind of finding, and the simplest of all is taken (`shortest`). They use no feature that the run
does not use, or they would find another fault of that kind and hide this one.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import permutations
from time import monotonic
from typing import Any

from kvproof.check.hosts.time_limit import HANG_SECONDS, OutOfTime, calls_take_at_most, seconds_left
from kvproof.check.oracle.level import settings_of, typed
from kvproof.check.oracle.repetition import is_same_failure
from kvproof.check.oracle.replay import Counterexample, finding_of, is_hang, located
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.search.random_walk import WalkOptions, walk
from kvproof.check.search.renumbering import renumbered
from kvproof.check.search.result import UNLIMITED
from kvproof.check.search.shrinking_worlds import smaller_worlds
from kvproof.check.search.strategies import Strategy
from kvproof.check.search.suppression import unused_features
from kvproof.spec.trace import Operation


def sort_key(config: Config, operations: Sequence[Operation]) -> tuple[Any, ...]:
    """The simpler of two runs has the smaller key: fewer operations, then smaller arguments, then a plainer
    configuration."""
    num_values, total = _size(tuple(operations))
    return len(operations), num_values, total, [s.rank(getattr(config, s.field)) for s in settings_of(config)]


def is_simpler(config: Config, operations: Sequence[Operation], best: Counterexample) -> bool:
    """Whether a run is simpler than that of a counterexample."""
    if len(operations) != len(best.operations):  # as it is most often, and it decides alone
        return len(operations) < len(best.operations)
    return sort_key(config, operations) < sort_key(best.config, best.operations)


def values_of(config: Config, names: Collection[str]) -> dict[str, Any]:
    """The values of these fields, by name."""
    return {name: getattr(config, name) for name in names}


def _size(value: Any) -> tuple[int, int]:
    """How many values an argument holds, and their sum. What is left out or empty counts nothing."""
    if isinstance(value, tuple | list):
        if set(map(type, value)) == {int}:
            return len(value), sum(value)
        sizes = [_size(item) for item in value]
        return sum(number for number, _ in sizes), sum(total for _, total in sizes)
    if value is None or value is False:
        return 0, 0
    return 1, value if isinstance(value, int) else 1


class Shrinker:
    """Shrinks one counterexample on one subject, which is opened again for each candidate.

    fixed: the fields of the configuration that the user has fixed: they keep their values.
    """

    def __init__(
        self,
        subject: Any,
        found: Counterexample,
        deadline: float,
        max_operations: int = UNLIMITED,
        begin: Callable[[Config], list[Operation]] = lambda config: [],
        fixed: Collection[str] = (),
    ) -> None:
        self.kept = values_of(found.config, fixed)
        self.subject, self.best, self.deadline = subject, found, deadline
        self.max_operations, self.begin = max_operations, begin
        self.num_replays = self.num_operations = 0
        self.tried: set[tuple[Config, tuple[Operation, ...]]] = {(found.config, tuple(found.operations))}

    def is_out_of_time(self) -> bool:
        """Whether the deadline has passed, or enough runs or operations were replayed."""
        is_enough = self.num_replays >= NUM_REPLAYS_MAX or self.num_operations >= self.max_operations
        return is_enough or monotonic() > self.deadline or seconds_left() <= 0

    def consider(self, config: Config, operations: list[Operation]) -> bool:
        """Take the candidate if it is simpler than the best run and refutes in the same way; whether it was taken."""
        candidate = config, tuple(operations)
        if self.is_out_of_time() or candidate in self.tried:
            return False
        self.tried.add(candidate)
        if not is_simpler(config, operations, self.best) or values_of(config, self.kept) != self.kept:
            return False
        self.num_replays += 1
        self.begin(config).extend(operations)
        try:
            finding = self._replayed(config, operations)
        except OutOfTime:
            return False
        if not is_same_failure(finding, self.best.finding) or finding is None:
            return False
        self.best = Counterexample(config, operations, finding)
        return True

    def _replayed(self, config: Config, operations: list[Operation]) -> Finding | None:
        self.num_operations += len(operations)
        if not is_hang(self.best.finding):
            return finding_of(self.subject, config, operations)
        with calls_take_at_most(HANG_SECONDS):
            finding = finding_of(self.subject, config, operations)
        if finding is not None and is_hang(finding):
            self.num_operations += OPERATIONS_OF_A_HANG
        return finding

    def consider_operations(self, operations: list[Operation]) -> bool:
        """Consider other operations in the same configuration."""
        return self.consider(self.best.config, operations)

    def run(self, passes: Sequence[Callable[["Shrinker"], None]]) -> Counterexample:
        """Run the passes until none helps or the time is over; after each success, the cheap first passes again."""
        at = 0
        while at < len(passes) and not self.is_out_of_time():
            before = self.best
            passes[at](self)
            at = 0 if at and self.best is not before else at + 1
        return self.best


NUM_REPLAYS_MAX = 20_000
OPERATIONS_OF_A_HANG = 500  # what a replay that hangs counts for, as it takes HANG_SECONDS
SLICE_MAX = 6
NUM_OPERATIONS_MAX = 60  # of a run in which every slice is tried
FILLING = ("take", "store", "reuse", "begin_store")  # operations of pools and stores that take blocks
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
    filling = [at for at, operation in enumerate(operations) if operation[0] in (*PROMPTS, *FILLING)]
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
        case ("begin_store", transfer, request, keys):
            return "begin_store", transfer, request, keys[: max(1, len(keys) - num_blocks)]
        case ("take", holder, held):
            return "take", holder, max(1, held - num_blocks)
    return operation


def one_holder_for_two(shrinker: Shrinker) -> None:
    """Let one holder of a pool stand for two: it is not given up, and lives on where the other one gets its blocks."""
    operations = shrinker.best.operations
    born = [holder for holder in map(_born, operations) if holder is not None]
    for kept, other in permutations(born, 2):
        merged = [_renamed(o, other, kept) for o in operations if o != ("give", kept) and _born(o) != other]
        if len(merged) < len(operations) and shrinker.consider_operations(merged):
            return one_holder_for_two(shrinker)


def _born(operation: Operation) -> int | None:
    """The holder of a pool that gets its first blocks from this operation, if any."""
    match operation:
        case ("share", _, child):
            return int(child)
        case ("take" | "store" | "reuse", holder, _):
            return int(holder)
    return None


def _renamed(operation: Operation, old: int, new: int) -> Operation:
    """The operation of a pool with another number for a holder."""
    match operation:
        case ("share", *holders):
            return "share", *(new if holder == old else holder for holder in holders)
        case ("give", holder, others):
            return "give", new if holder == old else holder, tuple(new if one == old else one for one in others)
        case (name, holder, *rest) if holder == old:
            return name, new, *rest
    return operation


def small_numbers(shrinker: Shrinker) -> None:
    """Number groups, sequences and the like from 1."""
    shrinker.consider_operations(renumbered(shrinker.best.operations))


PASSES = (
    drain_at_once,
    smaller_worlds,
    fewer_operations,
    plainer_settings,
    simpler_arguments,
    without_slices,
    fewer_samples,
    smaller_pools,
    one_holder_for_two,
    small_numbers,
)


LONG = 8  # operations; more are hard to keep in mind
NUM_WALKED_MAX = 5_000  # operations of one walk that looks for a shorter run


def shrink(subject: Any, found: Counterexample, seconds: float) -> Counterexample:
    """The simplest run found within `seconds` that refutes the same property in the same way."""
    return _shrunk(subject, Shrinker(subject, found, monotonic() + seconds))


def _shrunk(subject: Any, shrinker: Shrinker) -> Counterexample:
    found = shrinker.best
    best = shrinker.run(PASSES)
    if is_hang(found.finding):
        return best if best is found else _hanging(subject, best) or found
    exact = located(subject, best)
    return exact if exact.finding.kind == best.finding.kind else best


def _hanging(subject: Any, found: Counterexample) -> Counterexample | None:
    """The counterexample, if its call takes longer than the usual limit too, and is not only slow."""
    try:
        finding = finding_of(subject, found.config, found.operations)
    except OutOfTime:
        return None
    same = finding if is_same_failure(finding, found.finding) else None
    return None if same is None else Counterexample(found.config, found.operations, same)


def shortest(
    strategy: Strategy,
    make: Callable[[], Any],
    found: Counterexample,
    *,
    seconds: float,
    seed: int,
    long: int = LONG,
    walks: int | None = None,
    max_operations: int = UNLIMITED,
    begin: Callable[[Config], list[Operation]] = lambda config: [],
    fixed: Collection[str] = (),
) -> Counterexample:
    """Shrink; while the run has more than `long` operations, walk again to the same kind of finding.

    Half of the walks are in the configuration of the best run, which is small, and half in any that has no feature
    which the best run does not use. walks: how many there are at most, None for no limit. max_operations: of all
    replays together. Walks and operations are counted and not timed, so that a run repeats on a slower machine. begin:
    as in a walk. fixed: the fields that every run keeps.
    """
    deadline, num_left = monotonic() + seconds, max_operations

    def shrunk(one: Counterexample) -> Counterexample:
        nonlocal num_left
        subject = make()
        shrinker = Shrinker(subject, one, deadline, num_left, begin, fixed)
        best = _shrunk(subject, shrinker)
        num_left -= shrinker.num_operations
        return best

    best = shrunk(found)
    last = None if walks is None else seed + walks
    while len(best.operations) > long and seed != last and num_left > 0 and (left := deadline - monotonic()) > 0:
        seed += 1
        disabled = unused_features(best.config, best.operations) - set(fixed)
        settings = asdict(best.config) if seed % 2 else {}
        settings = {name: value for name, value in settings.items() if name not in disabled}
        settings |= values_of(best.config, fixed)
        options = WalkOptions(begin=begin, wanted=found.finding.kind, disabled=disabled)
        limits: dict[str, Any] = {"max_operations": NUM_WALKED_MAX, "seconds": left}
        done = walk(strategy, make(), seed, fixed=settings, options=options, **limits)
        if done.counterexample is not None:
            walked = done.counterexample
            other = shrunk(replace(walked, operations=list(walked.operations)))
            best = min(best, other, key=lambda one: sort_key(one.config, one.operations))
    return best
