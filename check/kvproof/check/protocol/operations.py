"""The base of every operation: typed arguments, simpler arguments, text.

A run is a list of operations. Judges and walkers keep an operation as a tuple of its name and arguments, such as
`("admit", 1, 4)`, because they make millions of them. The class of that name says everything else about it: which
arguments it takes and of which types (checked when a trace file is read), which simpler operations a shrinker tries,
how it reads as text, and whether a run can do without its kind. The operations of a level stand with its protocol:
`manager_operations`, `scheduler_operations`, `pool`. Two levels have no operation of the same name, so that the first
operation of a trace tells its level.

To add an operation, write its class there and its handler `op_<name>` in the judge of the level. A trailing argument
whose default is `UNSET` may be left out; it is left out again when the operation is saved.

Groups, sequences, requests and holders are numbers that the judge chooses, from 1 on; two of one kind never have the
same number in one run. Tokens and pages are small numbers. Counts are in tokens, unless a field says otherwise.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Config
from kvproof.spec.text.identity import Image, Key
from kvproof.spec.trace import Operation

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Ids = Annotated[tuple[int, ...], Meta(min_length=1)]
KeyData = tuple[str | None, int, str | None]  # adapter name, adapter id (0 for none), salt
ImageData = tuple[str, Count, Positive]  # name, first position, number of positions
Encoder = tuple[int, Ids] | None  # encoder sequence, its tokens
Transfer = tuple[int, bool]  # tokens of the prompt whose KV is elsewhere; whether the KV is sent at the end

PLAIN_KEY: KeyData = (None, 0, None)
WORDS = {"seq": "sequence"}  # fields whose name is not the word that a text uses

S = TypeVar("S", bound="TypedOperation")


class TypedOperation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An operation with typed arguments. The base of all."""

    is_optional: ClassVar[bool] = False  # whether a run can do without this kind, so that it may be disabled
    is_prompt: ClassVar[bool] = False  # whether it brings a prompt, and so the features that a prompt uses
    is_drawn: ClassVar[bool] = True  # whether walks do it; others stand for several operations in a shorter run

    @classmethod
    def kinds(cls) -> dict[str, type["TypedOperation"]]:
        """The operations derived from this class, by their names, in the order in which they are written."""
        found: dict[str, type[TypedOperation]] = {}
        for kind in cls.__subclasses__():
            found |= {kind.name(): kind} if kind.__struct_config__.tag is not None else {}
            found |= kind.kinds()
        return found

    @classmethod
    def name(cls) -> str:
        """The name of the operation in a trace: its tag."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def num_required(cls) -> int:
        """The number of arguments that may not be left out."""
        return len(cls.__struct_fields__) - len(cls.__struct_defaults__)

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        """Whether a subject with these capabilities can ever do this operation in this configuration."""
        return True

    def as_tuple(self) -> Operation:
        """The name and the arguments, without those that are left out at the end."""
        arguments = [getattr(self, field) for field in self.__struct_fields__]
        while arguments and arguments[-1] is UNSET:
            arguments.pop()
        return self.name(), *arguments

    def simpler(self) -> Iterator["TypedOperation"]:
        """Operations of the same kind with shorter or plainer arguments, the simplest first."""
        yield from ()

    def text(self, config: Config) -> str:
        """The operation as a call, for people."""
        parts = [f"{WORDS.get(field, field)} {getattr(self, field)}" for field in self.__struct_fields__]
        return f"{self.name()}({', '.join(parts)})"

    def has(self, argument: str) -> bool:
        """Whether its prompt has this argument, and it is neither empty nor the plain key."""
        value: Any = getattr(self, argument, None) if self.is_prompt else None
        return bool(value) and tuple(value) != PLAIN_KEY

    def changed(self: S, **arguments: Any) -> S:
        """The operation with other arguments."""
        return msgspec.structs.replace(self, **arguments)


# Simpler arguments ------------------------------------------------------------------------------------------------


def one_or_one_less(number: int) -> tuple[int, ...]:
    """1, and one less than the number, if it is more than 1."""
    return (1, number - 1) if number > 1 else ()


def smaller_numbers(number: int) -> list[int]:
    """Some smaller positive numbers, the smallest first."""
    some = {1, number // 2, number - 1}
    if number > 32:  # one by one would take long
        some |= {number - number // 4, number - number // 16}
    return [fewer for fewer in sorted(some) if 0 < fewer < number]


def simpler_tokens(tokens: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Fewer of them, then zeros."""
    yield from (tokens[:fewer] for fewer in smaller_numbers(len(tokens)))
    if any(tokens):
        yield (0,) * len(tokens)


def one_zero(tokens: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The single token 0, unless it is that already."""
    return ((0,),) if any(tokens) or len(tokens) > 1 else ()


def simpler_prompts(prompt: Any, without_encoder: UnsetType | None) -> Iterator[Any]:
    """Of a `New` or an `Add`: fewer sequences, no encoder, no images, no key, a shorter prompt, one token value."""
    if len(prompt.seqs) > 1:
        yield prompt.changed(seqs=prompt.seqs[:1])
    if prompt.encoder:
        seq, tokens = prompt.encoder
        yield prompt.changed(encoder=without_encoder)
        if len(tokens) > 1:
            yield prompt.changed(encoder=(seq, tokens[:1]))
    if prompt.images:
        yield prompt.changed(images=())
    if prompt.key is not UNSET and tuple(prompt.key) != PLAIN_KEY:
        yield prompt.changed(key=PLAIN_KEY)
    for simpler in simpler_tokens(prompt.tokens):
        within = {"images": clipped(prompt.images, len(simpler))} if prompt.images else {}
        yield prompt.changed(tokens=simpler, **within)


def clipped(images: Iterable[ImageData], num_tokens: int) -> tuple[ImageData, ...]:
    """The parts of images that lie in a prompt of so many tokens, and behind each other."""
    found, stop = list[ImageData](), 0
    for name, start, length in images:
        if stop <= start < num_tokens:
            stop = min(start + length, num_tokens)
            found.append((name, start, stop - start))
    return tuple(found)


# Text -------------------------------------------------------------------------------------------------------------


def count(number: int, noun: str) -> str:
    """A number with its noun, such as "1 block" or "2 blocks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def sequences_text(seqs: Iterable[int]) -> str:
    """Sequences with their noun."""
    numbers = [str(seq) for seq in seqs]
    return f"sequence {numbers[0]}" if len(numbers) == 1 else f"sequences {' and '.join(numbers)}"


def tokens_text(tokens: Sequence[int]) -> str:
    """How many tokens, and which."""
    if len(tokens) > 2 and len(set(tokens)) == 1:
        return f"{len(tokens)} tokens, all {tokens[0]}"
    return f"{count(len(tokens), 'token')}: {' '.join(str(token) for token in tokens)}"


def samples_text(tokens: Iterable[int]) -> str:
    """The tokens that the model samples."""
    return f"samples {' '.join(str(token) for token in tokens)}"


def prompt_text(prompt: Any) -> str:
    """The sequences of a `New` or an `Add`, their tokens, and what else their KV depends on."""
    key, parts = Key(*(prompt.key or ())), [sequences_text(prompt.seqs), tokens_text(prompt.tokens)]
    if key.adapter_id:
        parts.append(f"adapter {key.adapter_name} with id {key.adapter_id}")
    if key.salt:
        parts.append(f"salt {key.salt}")
    for image in (Image(*each) for each in prompt.images or ()):
        parts.append(f"image {image.name} in {count(image.length, 'position')} from {image.start}")
    if prompt.encoder:
        seq, tokens = prompt.encoder
        parts.append(f"encoder sequence {seq} of {tokens_text(tokens)}")
    return ", ".join(parts)
