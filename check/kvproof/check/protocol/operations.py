"""The operations of the three levels: one class for each.

A run is a list of operations. Judges and walkers keep an operation as a tuple of its name and arguments, such as
`("admit", 1, 4)`, because they make millions of them. The class of that name says everything else about it: which
arguments it takes and of which types (checked when a trace file is read), which simpler operations a shrinker tries,
how it reads as text, and whether a run can do without its kind.

To add an operation, write its class here and its handler `op_<name>` in the judge of its level. A trailing argument
whose default is `UNSET` may be left out; it is left out again when the operation is saved.

Groups, sequences, requests and holders are numbers that the judge chooses, from 1 on; two of one kind never have the
same number in one run. Tokens and pages are small numbers. Counts are in tokens, unless a field says otherwise.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import UNSET, UnsetType

from kvproof.check.protocol.manager import Capabilities, Config
from kvproof.check.protocol.operation_base import (
    Count,
    Encoder,
    Ids,
    ImageData,
    KeyData,
    ManagerOperation,
    PoolOperation,
    Positive,
    SchedulerOperation,
    Transfer,
    TypedOperation,
    count,
    one_or_one_less,
    one_zero,
    prompt_text,
    samples_text,
    simpler_prompts,
    simpler_tokens,
    smaller_numbers,
    tokens_text,
)
from kvproof.spec.trace import Operation

# Manager level ----------------------------------------------------------------------------------------------------


class New(ManagerOperation, tag="new", frozen=True):
    """A waiting group with the sequences `seqs` arrives; all have the same prompt `tokens`."""

    group: int
    seqs: Ids
    tokens: Ids
    key: KeyData | UnsetType = UNSET
    images: tuple[ImageData, ...] | UnsetType = UNSET
    encoder: Encoder | UnsetType = UNSET

    def simpler(self) -> Iterator["New"]:
        yield from simpler_prompts(self, without_encoder=UNSET)

    def text(self, config: Config) -> str:
        return f"new(group {self.group}, {prompt_text(self)})"


class Lookup(ManagerOperation, tag="lookup", frozen=True):
    """The waiting group is looked up in the prefix cache, and not admitted."""

    group: int

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return config.caching


class Admit(ManagerOperation, tag="admit", frozen=True):
    """Admit a waiting group, and schedule the first `chunk` tokens that are not hit."""

    group: int
    chunk: Count

    def simpler(self) -> Iterator["Admit"]:
        yield from (self.changed(chunk=chunk) for chunk in one_or_one_less(self.chunk))

    def text(self, config: Config) -> str:
        chunk = f", at most {count(self.chunk, 'token')}" if config.chunked else ""
        return f"admit(group {self.group}{chunk})"


class Extend(ManagerOperation, tag="extend", frozen=True):
    """Reserve slots for the next chunk of a prompt, and schedule it."""

    seq: int
    num_tokens: Positive

    def simpler(self) -> Iterator["Extend"]:
        yield from (self.changed(num_tokens=number) for number in one_or_one_less(self.num_tokens))

    def text(self, config: Config) -> str:
        return f"extend(sequence {self.seq}, {count(self.num_tokens, 'token')})"

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return config.chunked


class Sample(ManagerOperation, tag="sample", frozen=True):
    """The model samples one token for each running sequence of the group; sequence i gets token i."""

    group: int
    tokens: Ids

    def simpler(self) -> Iterator["Sample"]:
        if any(self.tokens):
            yield self.changed(tokens=(0,) * len(self.tokens))

    def text(self, config: Config) -> str:
        return f"sample(group {self.group}, {tokens_text(self.tokens)})"


class Append(ManagerOperation, tag="append", frozen=True):
    """Reserve a slot for the sampled token of each sequence of the group, and schedule it."""

    is_optional: ClassVar[bool] = True
    group: int


class Fork(ManagerOperation, tag="fork", frozen=True):
    """The running sequence `child` begins as a copy of `parent`, in the same group."""

    is_optional: ClassVar[bool] = True
    parent: int
    child: int

    def text(self, config: Config) -> str:
        return f"fork(sequence {self.parent}, into {self.child})"

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.fork


class Free(ManagerOperation, tag="free", frozen=True):
    """The sequence is over."""

    is_optional: ClassVar[bool] = True
    seq: int


class Preempt(ManagerOperation, tag="preempt", frozen=True):
    """The group gives up its blocks and waits again."""

    is_optional: ClassVar[bool] = True
    group: int


class SwapOut(ManagerOperation, tag="swap_out", frozen=True):
    """Move the group to host blocks."""

    is_optional: ClassVar[bool] = True
    group: int

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.swap and config.num_host_blocks > 0


class SwapIn(ManagerOperation, tag="swap_in", frozen=True):
    """Move the group back to GPU blocks."""

    group: int

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.swap and config.num_host_blocks > 0


class Run(ManagerOperation, tag="run", frozen=True):
    """The worker executes the step that was scheduled. tick: seconds that pass before it is launched."""

    tick: Count

    def simpler(self) -> Iterator["Run"]:
        if self.tick:
            yield self.changed(tick=0)

    def text(self, config: Config) -> str:
        return f"run(after {self.tick} s)" if self.tick else "run()"


class Reset(ManagerOperation, tag="reset", frozen=True):
    """Forget the prefix cache."""

    is_optional: ClassVar[bool] = True

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.reset and config.caching


# Scheduler level --------------------------------------------------------------------------------------------------


class Add(SchedulerOperation, tag="add", frozen=True):
    """A request arrives. Each of its sequences generates at most `max_tokens` tokens."""

    request: int
    seqs: Ids
    tokens: Ids
    max_tokens: Positive
    key: KeyData | UnsetType = UNSET
    images: tuple[ImageData, ...] | UnsetType = UNSET
    encoder: Encoder | UnsetType = UNSET
    transfer: Transfer | UnsetType = UNSET

    def simpler(self) -> Iterator["Add"]:
        if self.transfer:
            num_tokens, is_sent = self.transfer
            if num_tokens:
                yield self.changed(transfer=(0, is_sent))
                yield self.changed(transfer=(num_tokens // 2, is_sent))
            if is_sent:
                yield self.changed(transfer=(num_tokens, False))
        yield from simpler_prompts(self, without_encoder=None)
        yield from (self.changed(max_tokens=fewer) for fewer in smaller_numbers(self.max_tokens))

    def text(self, config: Config) -> str:
        num_tokens, is_sent = self.transfer or (0, False)
        transfers = f", {count(num_tokens, 'token')} from elsewhere" if num_tokens else ""
        transfers += ", sent when over" if is_sent else ""
        generates = f"generates {count(self.max_tokens, 'token')}"
        return f"add(request {self.request}, {prompt_text(self)}, {generates}{transfers})"


class Abort(SchedulerOperation, tag="abort", frozen=True):
    """The user of the request has left."""

    is_optional: ClassVar[bool] = True
    request: int


class Stop(SchedulerOperation, tag="stop", frozen=True):
    """From now on no request arrives, and no sequence forks."""


class Schedule(SchedulerOperation, tag="schedule", frozen=True):
    """The scheduler decides the next step."""


class Launch(SchedulerOperation, tag="launch", frozen=True):
    """The device starts the step that was scheduled last. tokens: what it samples, if the scheduler runs ahead."""

    tokens: Ids | UnsetType = UNSET

    def simpler(self) -> Iterator["Launch"]:
        if self.tokens:
            yield from (self.changed(tokens=tokens) for tokens in one_zero(self.tokens))

    def text(self, config: Config) -> str:
        return f"launch({samples_text(self.tokens) if self.tokens else ''})"


class Complete(SchedulerOperation, tag="complete", frozen=True):
    """The oldest step under way is executed.

    tokens: given to the sequences that sample, in turn. forks: pairs of a parent and its new child. stops: sequences
    that end. arrivals: sequences whose transfer is over.
    """

    tokens: Ids
    forks: tuple[tuple[int, int], ...] | UnsetType = UNSET
    stops: tuple[int, ...] | UnsetType = UNSET
    arrivals: tuple[int, ...] | UnsetType = UNSET

    def simpler(self) -> Iterator["Complete"]:
        events = {name: getattr(self, name) for name in ("forks", "stops", "arrivals") if getattr(self, name)}
        if events:
            yield Complete(self.tokens)
        for name, ids in events.items():
            for at in range(len(ids)):
                yield self.changed(**{name: ids[:at] + ids[at + 1 :]})
        yield from (self.changed(tokens=tokens) for tokens in one_zero(self.tokens))

    def text(self, config: Config) -> str:
        parts = [samples_text(self.tokens)]
        parts += [f"forks sequence {parent} into {child}" for parent, child in self.forks or ()]
        parts += [f"ends sequence {seq}" for seq in self.stops or ()]
        parts += [f"the transfer of sequence {seq} is over" for seq in self.arrivals or ()]
        return f"complete({', '.join(parts)})"


class Drain(SchedulerOperation, tag="drain", frozen=True):
    """Stop, then do steps until every request is over, each with the same sampled tokens."""

    tokens: Ids

    def simpler(self) -> Iterator["Drain"]:
        yield from (self.changed(tokens=tokens) for tokens in one_zero(self.tokens))

    def text(self, config: Config) -> str:
        return f"drain({samples_text(self.tokens)})"


# Pool level -------------------------------------------------------------------------------------------------------


class Take(PoolOperation, tag="take", frozen=True):
    """A new holder takes blocks without content."""

    holder: int
    num_blocks: Positive

    def simpler(self) -> Iterator["Take"]:
        yield from (self.changed(num_blocks=number) for number in one_or_one_less(self.num_blocks))

    def text(self, config: Config) -> str:
        return f"take(holder {self.holder}, {count(self.num_blocks, 'block')})"


class WithPages(PoolOperation, frozen=True):
    """A new holder asks for the blocks of a list of pages."""

    holder: int
    pages: Ids

    def simpler(self) -> Iterator["WithPages"]:
        yield from (self.changed(pages=pages) for pages in simpler_tokens(self.pages))

    def text(self, config: Config) -> str:
        return f"{self.name()}(holder {self.holder}, pages {' '.join(map(str, self.pages))})"


class Store(WithPages, tag="store", frozen=True):
    """The new holder takes a block for each page, computes the pages, and caches the blocks."""


class Reuse(WithPages, tag="reuse", frozen=True):
    """The new holder looks the pages up, and shares the blocks that are found."""

    is_optional: ClassVar[bool] = True


class Find(PoolOperation, tag="find", frozen=True):
    """Look pages up in the cache, and take nothing."""

    pages: Ids

    def simpler(self) -> Iterator["Find"]:
        yield from (self.changed(pages=pages) for pages in simpler_tokens(self.pages))

    def text(self, config: Config) -> str:
        return f"find(pages {' '.join(map(str, self.pages))})"


class Share(PoolOperation, tag="share", frozen=True):
    """The new holder `child` shares every block of the holder `parent`."""

    is_optional: ClassVar[bool] = True
    parent: int
    child: int

    def text(self, config: Config) -> str:
        return f"share(holder {self.parent}, with {self.child})"


class Give(PoolOperation, tag="give", frozen=True):
    """The holder gives up its blocks, in one call together with the `others`."""

    holder: int
    others: Ids | UnsetType = UNSET

    def simpler(self) -> Iterator["Give"]:
        if self.others:
            yield Give(self.holder)
            yield from (self.changed(others=self.others[:at] + self.others[at + 1 :]) for at in range(len(self.others)))

    def text(self, config: Config) -> str:
        together = [self.holder, *(self.others or ())]
        return f"give(holder{'s' if len(together) > 1 else ''} {', '.join(map(str, together))})"


class Forget(PoolOperation, tag="forget", frozen=True):
    """Forget what is cached."""


# All kinds --------------------------------------------------------------------------------------------------------

LEVELS: tuple[type[TypedOperation], ...] = (ManagerOperation, SchedulerOperation, PoolOperation)


def _tagged(base: type[TypedOperation]) -> Iterator[type[TypedOperation]]:
    for kind in base.__subclasses__():
        if kind.__struct_config__.tag is not None:
            yield kind
        yield from _tagged(kind)


KINDS: dict[str, type[TypedOperation]] = {kind.name(): kind for level in LEVELS for kind in _tagged(level)}


def kinds_of(level: type[TypedOperation]) -> dict[str, type[TypedOperation]]:
    """The operations of a level, by their names."""
    return {name: kind for name, kind in KINDS.items() if issubclass(kind, level)}


def typed(operation: Operation) -> TypedOperation:
    """The class of an operation, with its arguments as they are. Raises KeyError for an unknown name."""
    return KINDS[operation[0]](*operation[1:])


def simpler_operations(operation: Operation) -> Iterator[Operation]:
    """Operations of the same name with shorter or plainer arguments, the simplest first."""
    return (simpler.as_tuple() for simpler in typed(operation).simpler())


def text_of(operation: Operation, config: Config) -> str:
    """An operation as a call, for people."""
    return typed(operation).text(config)


def optional_kinds() -> list[str]:
    """The names of the operations that a run can do without, sorted."""
    return sorted(name for name, kind in KINDS.items() if kind.is_optional)
