"""The operations around a scheduler: what users, the model and the worker do, one call at a time.

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
    Transfer,
    TypedOperation,
    count,
    one_zero,
    prompt_text,
    samples_text,
    simpler_prompts,
    simpler_tokens,
    smaller_numbers,
    tokens_text,
)

FailuresData = tuple[tuple[int, tuple[Count, ...]], ...]  # sequences, places of the blocks that fail; none: all
DraftsData = tuple[tuple[int, Ids, Count], ...]  # sequences, tokens, and how many of them are right


def drafts_text(drafts: DraftsData) -> list[str]:
    """What is proposed, for each sequence."""
    return [f"proposes {list(tokens)}, {num_right} right, for {seq}" for seq, tokens, num_right in drafts]


def failures_text(failures: FailuresData) -> list[str]:
    """Which blocks of which loads fail."""
    return [
        f"the load of sequence {seq} fails" + (f" for its blocks no. {', '.join(map(str, places))}" if places else "")
        for seq, places in failures
    ]


def simpler_failures(failures: FailuresData) -> Iterator[FailuresData]:
    """Without one of them; or with fewer blocks that fail."""
    for at, (seq, places) in enumerate(failures):
        yield failures[:at] + failures[at + 1 :]
        if len(places) != 1:
            yield (*failures[:at], (seq, places[:1] or (0,)), *failures[at + 1 :])


class SchedulerOperation(TypedOperation, frozen=True):
    """What users, the model and the worker do around a scheduler."""


class Add(SchedulerOperation, tag="add", frozen=True):
    """A request arrives. Each of its sequences generates at most `max_tokens` tokens."""

    is_prompt: ClassVar[bool] = True
    request: int
    seqs: Ids
    tokens: Ids
    max_tokens: Positive
    key: KeyData | UnsetType = UNSET
    images: tuple[ImageData, ...] | UnsetType = UNSET
    encoder: Encoder | UnsetType = UNSET
    transfer: Transfer | UnsetType = UNSET
    priority: Count | UnsetType = UNSET
    is_session: bool | UnsetType = UNSET

    def simpler(self) -> Iterator["Add"]:
        if self.is_session is not UNSET:
            yield self.changed(is_session=UNSET)
        if self.transfer:
            num_tokens, is_sent = self.transfer
            if num_tokens:
                yield self.changed(transfer=(0, is_sent))
                yield self.changed(transfer=(num_tokens // 2, is_sent))
            if is_sent:
                yield self.changed(transfer=(num_tokens, False))
        if self.priority:
            yield self.changed(priority=0)
        yield from simpler_prompts(self, without_encoder=None)
        yield from (self.changed(max_tokens=fewer) for fewer in smaller_numbers(self.max_tokens))

    def text(self, config: Config) -> str:
        num_tokens, is_sent = self.transfer or (0, False)
        transfers = f", {count(num_tokens, 'token')} from elsewhere" if num_tokens else ""
        transfers += ", sent when over" if is_sent else ""
        transfers += f", priority {self.priority}" if self.priority else ""
        transfers += ", a session" if self.is_session is True else ""
        generates = f"generates {count(self.max_tokens, 'token')}"
        return f"add(request {self.request}, {prompt_text(self)}, {generates}{transfers})"


class Abort(SchedulerOperation, tag="abort", frozen=True):
    """The user of the request has left."""

    is_optional: ClassVar[bool] = True
    request: int

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return can.aborts


class Stop(SchedulerOperation, tag="stop", frozen=True):
    """From now on no request arrives, and no sequence forks."""


class Schedule(SchedulerOperation, tag="schedule", frozen=True):
    """The scheduler decides the next step."""


class Launch(SchedulerOperation, tag="launch", frozen=True):
    """The device starts the step that was scheduled last. tokens: what it samples, if the scheduler runs ahead.

    drafts: as of `complete`, if the scheduler runs ahead. failures: loads within this step that fail, each with the
    places of the blocks that fail, among those that it loads.
    """

    tokens: tuple[int, ...] | UnsetType = UNSET
    drafts: DraftsData | UnsetType = UNSET
    failures: FailuresData | UnsetType = UNSET

    def simpler(self) -> Iterator["Launch"]:
        drafts = self.drafts or ()
        for at in range(len(drafts)):
            yield self.changed(drafts=drafts[:at] + drafts[at + 1 :])
        yield from (self.changed(failures=failures) for failures in simpler_failures(self.failures or ()))
        if self.tokens:
            yield from (self.changed(tokens=tokens) for tokens in one_zero(self.tokens))

    def text(self, config: Config) -> str:
        parts = [samples_text(self.tokens)] if self.tokens else []
        return f"launch({', '.join([*parts, *drafts_text(self.drafts or ()), *failures_text(self.failures or ())])})"


class Complete(SchedulerOperation, tag="complete", frozen=True):
    """The oldest step under way is executed.

    tokens: given to the sequences that sample, in turn. forks: pairs of a parent and its new child. stops: sequences
    that end. arrivals: sequences whose transfer is over. copied: places of the copies to and from host memory that are
    over, among those that can be, the oldest first. drafts: sequences for which the next tokens are guessed, each with
    these tokens, and how many of them are right. failures: loads under way that are reported to fail, as of `launch`.
    repeated: sequences whose load was reported to be over before, and is once more.
    """

    tokens: Ids
    forks: tuple[tuple[int, int], ...] | UnsetType = UNSET
    stops: tuple[int, ...] | UnsetType = UNSET
    arrivals: tuple[int, ...] | UnsetType = UNSET
    copied: tuple[int, ...] | UnsetType = UNSET
    drafts: DraftsData | UnsetType = UNSET
    failures: FailuresData | UnsetType = UNSET
    repeated: tuple[int, ...] | UnsetType = UNSET

    def simpler(self) -> Iterator["Complete"]:
        names = "forks", "stops", "arrivals", "copied", "drafts", "repeated"
        events = {name: getattr(self, name) for name in names if getattr(self, name)}
        if events or self.failures:
            yield Complete(self.tokens)
        yield from (self.changed(failures=failures) for failures in simpler_failures(self.failures or ()))
        for name, ids in events.items():
            for at in range(len(ids)):
                yield self.changed(**{name: ids[:at] + ids[at + 1 :]})
        yield from (self.changed(tokens=tokens) for tokens in one_zero(self.tokens))

    def text(self, config: Config) -> str:
        parts = [samples_text(self.tokens)]
        parts += [f"forks sequence {parent} into {child}" for parent, child in self.forks or ()]
        parts += [f"ends sequence {seq}" for seq in self.stops or ()]
        parts += [f"the transfer of sequence {seq} is over" for seq in self.arrivals or ()]
        parts += [f"copies no. {', '.join(map(str, self.copied))} are over"] if self.copied else []
        parts += drafts_text(self.drafts or ()) + failures_text(self.failures or ())
        parts += [f"the load of sequence {seq} is reported once more" for seq in self.repeated or ()]
        return f"complete({', '.join(parts)})"


class ResetCaches(SchedulerOperation, tag="reset_caches", frozen=True):
    """Between steps, drop what is cached on the device, and all that a connector keeps in host memory.

    preempts: whether every running request is preempted first, so that no block is in use. keeps_host: what is in host
    memory stays.
    """

    is_optional: ClassVar[bool] = True
    preempts: bool = False
    keeps_host: bool | UnsetType = UNSET

    def simpler(self) -> Iterator["ResetCaches"]:
        if self.keeps_host is not UNSET:
            yield ResetCaches(self.preempts)
        if self.preempts:
            yield ResetCaches()

    def text(self, config: Config) -> str:
        parts = ["preempts all"] * self.preempts + ["keeps what is in host memory"] * (self.keeps_host is True)
        return f"reset_caches({', '.join(parts)})"

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return bool(can.connectors) or getattr(config, "resets", False)


class Feed(SchedulerOperation, tag="feed", frozen=True):
    """Between steps, the next input of a session arrives; it generates at most `max_tokens` tokens after it."""

    is_optional: ClassVar[bool] = True
    request: int
    tokens: Ids
    max_tokens: Positive

    def simpler(self) -> Iterator["Feed"]:
        yield from (self.changed(tokens=tokens) for tokens in simpler_tokens(self.tokens))
        yield from (self.changed(max_tokens=fewer) for fewer in smaller_numbers(self.max_tokens))

    def text(self, config: Config) -> str:
        return f"feed(request {self.request}, {tokens_text(self.tokens)}, generates {count(self.max_tokens, 'token')})"

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return getattr(config, "sessions", False)


class Close(SchedulerOperation, tag="close", frozen=True):
    """Between steps: a session gets no further input."""

    is_optional: ClassVar[bool] = True
    request: int

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return getattr(config, "sessions", False)


class Pause(SchedulerOperation, tag="pause", frozen=True):
    """Between steps, the scheduler is paused.

    serves_nobody: else those who have blocks are served, and nobody is let in.
    """

    is_optional: ClassVar[bool] = True
    serves_nobody: bool = False

    def simpler(self) -> Iterator["Pause"]:
        if self.serves_nobody:
            yield Pause()

    def text(self, config: Config) -> str:
        return f"pause({'serves nobody' if self.serves_nobody else 'lets nobody in'})"

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return getattr(config, "pauses", False)


class GoOn(SchedulerOperation, tag="go_on", frozen=True):
    """Between steps, a scheduler that is paused goes on."""

    is_optional: ClassVar[bool] = True

    def text(self, config: Config) -> str:
        return "go_on()"

    @classmethod
    def is_possible(cls, config: Config, can: Capabilities) -> bool:
        return getattr(config, "pauses", False)


class Drain(SchedulerOperation, tag="drain", frozen=True):
    """Stop, then do steps until every request is over, each with the same sampled tokens."""

    is_drawn = False

    tokens: Ids

    def simpler(self) -> Iterator["Drain"]:
        yield from (self.changed(tokens=tokens) for tokens in one_zero(self.tokens))

    def text(self, config: Config) -> str:
        return f"drain({samples_text(self.tokens)})"
