"""The operations of a block manager: what an engine asks of it, one call at a time.

`operations` says what the class of an operation is for.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import UNSET, UnsetType

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.operations import (
    Count,
    Encoder,
    Ids,
    ImageData,
    KeyData,
    Positive,
    TypedOperation,
    count,
    one_or_one_less,
    prompt_text,
    simpler_prompts,
    smaller_numbers,
    tokens_text,
)


def may_lose_steps(config: Config, can: Capabilities) -> bool:
    """Whether what was admitted may be over before its step, and whether a step may fail.

    A manager without a prefix cache does not learn of steps, so that these are no calls of their own. Where a hit may
    name a block of the very same step, the reader counts on the writer.
    """
    return config.caching and not (can.steps_are_certain or can.same_step_hits or config.prefixes)


class ManagerOperation(TypedOperation, frozen=True):
    """What an engine asks of its block manager, one call at a time."""


class New(ManagerOperation, tag="new", frozen=True):
    """A waiting group with the sequences `seqs` arrives; all have the same prompt `tokens`."""

    is_prompt: ClassVar[bool] = True
    group: int
    seqs: Ids
    tokens: Ids
    key: KeyData | UnsetType = UNSET
    images: tuple[ImageData, ...] | UnsetType = UNSET
    encoder: Encoder | UnsetType = UNSET
    prefix: Positive | UnsetType | None = UNSET  # so many tokens are a named prefix
    elsewhere: Positive | UnsetType = UNSET  # of so many tokens there is KV elsewhere

    def simpler(self) -> Iterator["New"]:
        if self.elsewhere:
            yield self.changed(elsewhere=UNSET, prefix=UNSET, encoder=UNSET)
            yield from (self.changed(elsewhere=fewer) for fewer in smaller_numbers(self.elsewhere))
            yield from simpler_prompts(self, without_encoder=None)
            return
        if self.prefix:
            without = self.changed(prefix=UNSET)
            yield without if without.encoder else without.changed(encoder=UNSET)
            yield from (self.changed(prefix=fewer) for fewer in smaller_numbers(self.prefix))
        yield from simpler_prompts(self, without_encoder=None if self.prefix else UNSET)

    def has(self, argument: str) -> bool:
        if argument in ("prefix", "elsewhere"):
            return bool(getattr(self, argument))
        return super().has(argument)

    def text(self, config: Config) -> str:
        prefix = f", prefix of {count(self.prefix, 'token')}" if self.prefix else ""
        loads = f", {count(self.elsewhere, 'token')} from elsewhere" if self.elsewhere else ""
        return f"new(group {self.group}, {prompt_text(self)}{prefix}{loads})"


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


class Fail(ManagerOperation, tag="fail", frozen=True):
    """The step that was scheduled fails: nothing of it is computed, and the groups that it was for are over."""

    is_optional: ClassVar[bool] = True

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return may_lose_steps(config, can)


class Reset(ManagerOperation, tag="reset", frozen=True):
    """Forget the prefix cache."""

    is_optional: ClassVar[bool] = True

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.reset and config.caching
