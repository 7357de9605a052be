"""The protocol of a cache of encoder outputs: the calls that it must offer to be judged.

A multimodal model computes an output for each image (or sound, or video) of a request: some embeddings, which the steps
of the request read. The cache decides which outputs are kept, for which requests, in a room of so many embeddings. It
moves no bytes: the *worker* computes the outputs, keeps them and removes them. The judge is this worker, and the
scheduler.

Contents. A *content* is a number that stands for an image, no matter who sends it; requests with one content share its
output. An *input* is an image of a request, at a place among its images. A request *references* an output from the
moment when it finds it, or takes room for it, until it releases that input.

Steps. A step is scheduled: requests look for the outputs that they need (`has_output`); for one that is not there they
ask for room (`has_room`) and then take it (`take_room`). Then the cache reports what it has evicted (`take_dropped`);
the worker removes what is reported, and computes what was taken in this step and is still cached. The cache may evict
at any call an output that no request references.

Numbers. Requests and contents are numbers that the judge chooses; places count from 0. Errors are as in
`protocol.manager`.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from kvproof.check.protocol.adapter_check import RequiredCalls, calls_of, check_answer, short
from kvproof.check.protocol.capabilities import Capabilities, EncoderCan
from kvproof.check.protocol.features import Setting
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Assumption, Config
from kvproof.check.protocol.operations import Count, Ids, Positive, TypedOperation, smaller_numbers


@dataclass(frozen=True)
class EncoderConfig(Config):
    """One configuration of a cache: room for `num_embeddings`, and outputs of 1 to `longest_output` embeddings.

    What it has in common with the configurations of other levels means nothing here; `num_gpu_blocks`, in which every
    level counts its blocks, is another name of `num_embeddings`.
    """

    block_size: int = 1
    longest_output: int = 3  # embeddings of the longest output

    @property
    def num_embeddings(self) -> int:
        """How many embeddings the cache has room for."""
        return self.num_gpu_blocks

    def length_of(self, content: int) -> int:
        """The embeddings of the output of a content."""
        return 1 + content % self.longest_output

    def as_dict(self) -> dict[str, Any]:
        """The fields that differ from their defaults, by name."""
        default = asdict(EncoderConfig())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


ENCODER_SETTINGS = (Setting("longest_output", lambda config: smaller_numbers(config.longest_output), least=1),)


class Input(NamedTuple):
    """An image of a request. length: the embeddings of its output."""

    content: int
    length: int


class EncoderObservation(NamedTuple):
    """The state that a cache shows after a call.

    refs: for each content whose output is cached, the requests that reference it, in any order. free: the embeddings
    that no cached output takes. reclaimable: those, and the ones of outputs that no request references; None if it
    does not show this. places: for each request that references something, the places of these inputs; None if it
    does not show this.
    """

    refs: dict[int, list[int]]
    free: int
    reclaimable: int | None = None
    places: dict[int, list[int]] | None = None


def check_encoder_observation(observed: Any) -> None:
    """Raise AdapterError unless this is an EncoderObservation whose every field has the right type."""
    check_answer("observe", observed, EncoderObservation)
    for name, table in (("refs", observed.refs), ("places", {} if observed.places is None else observed.places)):
        lists = isinstance(table, dict) and all(isinstance(one, list) for one in table.values())
        if not lists or any(type(one) is not int for key, numbers in table.items() for one in (key, *numbers)):
            raise AdapterError(f"observe().{name} must be a dict of lists of ints; it is {short(table)}", "observe")
    if type(observed.free) is not int or type(observed.reclaimable) not in (int, type(None)):
        raise AdapterError(f"observe().free and .reclaimable must be ints; they are {short(observed[1:3])}", "observe")


class EncoderSubject(Protocol):
    """A cache of encoder outputs behind an adapter."""

    name: str
    assumptions: tuple[Assumption, ...]

    @property
    def capabilities(self) -> EncoderCan:
        """What it declares that it can do."""

    def open(self, config: EncoderConfig) -> None:
        """Make a new cache without outputs, and forget the old one. Raises Unsupported."""

    def begin_request(self, request: int, inputs: list[Input]) -> None:
        """A request with these inputs is there. It references nothing yet."""

    def has_output(self, request: int, place: int) -> bool:
        """Whether the output of the input is cached; if it is, the request references it from now on."""

    def has_room(self, request: int, place: int, budget: int, num_taken: int) -> bool:
        """Whether there is room for the output of the input, in addition to `num_taken` embeddings.

        For those the request was given room in this step, and has not taken it yet. The answer is no if the output is
        longer than `budget`, the embeddings that the step may still compute. After the answer yes there is room, until
        the request takes it or another one asks.
        """

    def take_room(self, request: int, place: int) -> None:
        """The output is cached from now on, and the request references it. It is computed in this step."""

    def release_output(self, request: int, place: int) -> None:
        """The request has read the output of an input that it references, and does not need it any more."""

    def release_all(self, request: int) -> None:
        """The request is preempted, or cannot be scheduled after all: it references nothing any more."""

    def end_request(self, request: int) -> None:
        """The request has ended or was aborted: it references nothing any more, and does not come again."""

    def take_dropped(self) -> list[int]:
        """The contents whose outputs were evicted since the last call, and which the worker shall remove."""

    def forget_outputs(self) -> None:
        """Forget every output, and who references it, as the worker does. Of a cache that declares `reset`."""

    def observe(self) -> EncoderObservation:
        """The current state. Changes nothing, and returns copies."""


ENCODER_CALLS = RequiredCalls(
    "cache of encoder outputs",
    tuple(name for name in calls_of(EncoderSubject) if name != "forget_outputs"),
    declared=(("reset", "can be reset", ("forget_outputs",)),),
    marks=("has_output", "take_room", "take_dropped"),
)


# Operations -------------------------------------------------------------------------------------------------------


class EncoderOperation(TypedOperation, frozen=True):
    """What a scheduler asks of a cache of encoder outputs."""


class Bring(EncoderOperation, tag="bring", frozen=True):
    """A new request with images of these contents."""

    request: int
    contents: Ids

    def simpler(self) -> Iterator["Bring"]:
        yield from (self.changed(contents=self.contents[:number]) for number in smaller_numbers(len(self.contents)))
        for at, content in enumerate(self.contents):
            if content:
                yield self.changed(contents=(*self.contents[:at], content - 1, *self.contents[at + 1 :]))

    def text(self, config: Config) -> str:
        assert isinstance(config, EncoderConfig)
        named = ", ".join(f"{content} ({config.length_of(content)})" for content in self.contents)
        return f"bring(request {self.request}, contents with their lengths: {named})"


class Encode(EncoderOperation, tag="encode", frozen=True):
    """A step shall compute tokens of the request that need these inputs.

    first, number: the places; number is cut at the end. budget: the embeddings that the step may still compute.
    """

    request: int
    first: Count
    number: Positive
    budget: Count

    def simpler(self) -> Iterator["Encode"]:
        yield from (self.changed(number=number) for number in smaller_numbers(self.number))
        yield from (self.changed(first=first) for first in range(min(self.first, 2)))

    def text(self, config: Config) -> str:
        last = self.first + self.number - 1
        places = f"input {self.first}" if self.number == 1 else f"inputs {self.first} to {last}"
        return f"{self.name()}(request {self.request}, {places}, budget {self.budget})"


class EncodeInVain(Encode, tag="encode_in_vain", frozen=True):
    """The same, but there are no KV blocks for the tokens: nothing is taken, and the request references nothing."""

    is_optional: ClassVar[bool] = True


class ReadInputs(EncoderOperation, tag="read_inputs", frozen=True):
    """A step was executed in which the request read the first outputs that it references; it releases them."""

    is_optional: ClassVar[bool] = True
    request: int
    number: Positive

    def simpler(self) -> Iterator["ReadInputs"]:
        yield from (self.changed(number=number) for number in smaller_numbers(self.number))


class PutBack(EncoderOperation, tag="put_back", frozen=True):
    """The request is preempted: it will need all of its inputs again, but for those whose KV is found."""

    is_optional: ClassVar[bool] = True
    request: int


class Leave(EncoderOperation, tag="leave", frozen=True):
    """The request has ended, or was aborted."""

    is_optional: ClassVar[bool] = True
    request: int


class EndStep(EncoderOperation, tag="end_step", frozen=True):
    """The step is scheduled, and executed: the worker removes what is reported, and computes what was taken."""


class ForgetOutputs(EncoderOperation, tag="forget_outputs", frozen=True):
    """Between two steps every output is forgotten, by the cache and by the worker."""

    is_optional: ClassVar[bool] = True

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.reset
