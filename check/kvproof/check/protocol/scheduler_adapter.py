"""A base for adapters of schedulers: it keeps the requests, refused prompts, aborts within a step, and the clock.

An adapter derives from `SchedulerAdapter` and says what its scheduler can do (`capabilities`). It defines `make`, which
returns the scheduler, `add`, `next_step`, `take_results` and `observe`, and `cancel` if requests can be aborted.

An engine does not send a prompt that is longer than its model to the scheduler. So the base refuses such a prompt, and
reports the request as ignored with the next step. An engine also carries out an abort only at certain times. So the
base keeps an abort until `takes_aborts`, and drops it if the request is over by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvproof.check.protocol.capabilities import SchedulerCan, whole
from kvproof.check.protocol.features import require_capable
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Assumption, Observation, Unsupported
from kvproof.check.protocol.scheduler import ABORTED, IGNORED, Access, ScheduledStep, SchedulerConfig
from kvproof.spec.compilation import sized_function
from kvproof.spec.text.budgets import num_to_generate
from kvproof.spec.text.identity import Image, Key

ALWAYS = ("make", "add", "next_step", "take_results", "observe")


@dataclass
class Request:
    """A request that is not over.

    number: the judge's id of it. seqs: its sequences that are not over. tokens: the prompt. key, images: what the KV of
    the prompt depends on in addition to its tokens. max_tokens: how many each sequence shall generate. encoder: the id
    and the tokens of its encoder sequence.
    """

    number: int
    seqs: list[int]
    tokens: list[int]
    key: Key
    images: tuple[Image, ...]
    max_tokens: int
    encoder: tuple[int, list[int]] | None

    @property
    def seq(self) -> int:
        """Its first sequence."""
        return self.seqs[0]


class SchedulerAdapter:
    """A scheduler as a subject, request by request.

    `self.scheduler` is what `make` returned, `self.config` the configuration, `self.requests` the requests that the
    scheduler has, by number, and `self.requests_by_seq` the same ones by their sequences. `self.under_way` is what
    `next_step` returned first for each step that is not complete, the oldest first, `self.is_launched` whether the
    newest step was launched, and `self.now` the number of steps so far. `self.ends`, needed with `reports_ends`, is how
    each request ended that was aborted, ignored or failed; `self.each_end`, needed with `reports_each_end`, is how each
    sequence of such requests did. `self.outputs`, needed with `reports_tokens`, is which
    tokens the user of each sequence got with the last `take_results`.
    """

    name = "scheduler"
    capabilities: SchedulerCan = SchedulerCan()
    assumptions: tuple[Assumption, ...] = ()
    is_base_of_adapters = True  # what goes wrong in a method of a derived class is a fault of the adapter
    refuses_long_prompts = True  # else the scheduler gets them, and says with a step that it ignores them

    scheduler: Any
    config: SchedulerConfig
    requests: dict[int, Request]
    requests_by_seq: dict[int, Request]
    under_way: list[Any]
    ends: dict[int, str]
    each_end: dict[int, str]
    outputs: dict[int, list[int]]
    is_launched: bool
    now = 0

    # What an adapter must define ------------------------------------------------------------------------------------

    def make(self, config: SchedulerConfig) -> Any:
        """Return a new scheduler without requests. Raises Unsupported for a configuration it cannot have."""
        raise NotImplementedError

    def add(self, request: Request) -> None:
        """Give a new request to the scheduler."""
        raise NotImplementedError

    def cancel(self, request: Request) -> None:
        """Take an aborted request from the scheduler. Needed if `capabilities.aborts`."""
        raise NotImplementedError

    def next_step(self) -> tuple[Any, ScheduledStep]:
        """Let the scheduler decide the next step. Returns what `take_results` needs to know of it, and the step."""
        raise NotImplementedError

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        """Give the results of the oldest step to the scheduler; output: what `next_step` returned for it."""
        raise NotImplementedError

    def goes_on(self, seq: int) -> bool:
        """Whether a sequence that has its tokens is a session that goes on. Needed with `capabilities.sessions`."""
        return False

    def fork(self, parent: int, child: int) -> bool | None:
        """Fork a sequence, before the results of a step. Needed if `capabilities.fork`.

        Returns False if the scheduler refused to.
        """
        raise NotImplementedError

    def observe(self) -> Observation:
        """Copies of what the block manager shows. Changes nothing."""
        raise NotImplementedError

    def takes_aborts(self) -> bool:
        """Whether the engine carries out aborts now: only between steps, unless an adapter says otherwise."""
        return not self.under_way

    # The protocol -----------------------------------------------------------------------------------------------------

    def open(self, config: SchedulerConfig) -> None:
        """Make a new scheduler and forget all requests. Raises Unsupported, and AdapterError if a method is missing."""
        self._require_complete()
        can = whole(self.capabilities)  # a scheduler that forks by itself takes requests of several sequences
        require_capable(self.name, config, replace(can, waiting_groups=can.waiting_groups or can.forks_itself))
        self.config = config
        self.requests, self.under_way, self.is_launched, self.now = {}, [], True, 0
        self.requests_by_seq = {}
        self._refused: list[int] = []
        self.ends = {}
        self.each_end = {}
        self.outputs = {}
        self._leaving: list[int] = []  # aborted, and not cancelled yet
        self.scheduler = self.make(config)
        if self.scheduler is None:
            raise AdapterError("make must return the new scheduler; it returned None", "make")

    def _require_complete(self) -> None:
        can, mine = whole(self.capabilities), type(self)
        needed = (*ALWAYS, *(["cancel"] if can.aborts else []), *(["fork"] if can.fork else []))
        missing = [name for name in needed if getattr(mine, name) is getattr(SchedulerAdapter, name)]
        if missing:
            raise AdapterError(f"{mine.__name__} must define {', '.join(missing)}")

    def add_request(
        self,
        request: int,
        seqs: list[int],
        tokens: list[int],
        key: Key,
        images: tuple[Image, ...],
        max_tokens: int,
        encoder: tuple[int, list[int]] | None,
    ) -> None:
        """Add a request, unless its prompt is too long."""
        if self.refuses_long_prompts and len(tokens) > self.config.max_model_len:
            self._refused.append(request)
        else:
            self.keep(Request(request, list(seqs), tokens[:], key, images, max_tokens, encoder))
            self.add(self.requests[request])

    def keep(self, request: Request) -> None:
        """Remember a request that the scheduler has."""
        self.requests[request.number] = request
        self.requests_by_seq.update(dict.fromkeys(request.seqs, request))

    def abort(self, request: int) -> None:
        """Abort a request as soon as the engine takes aborts."""
        if request in self._refused:
            self._refused.remove(request)
            self.ends[request] = ABORTED
        else:
            self._leaving.append(request)
            self._carry_out_aborts()

    def _carry_out_aborts(self) -> None:
        while self._leaving and self.takes_aborts():
            if (request := self._drop(self._leaving.pop(0))) is not None:
                self.cancel(request)

    def _drop(self, number: int) -> Request | None:
        request = self.requests.pop(number, None)
        for seq in request.seqs if request else ():
            del self.requests_by_seq[seq]
        return request

    def schedule(self) -> ScheduledStep:
        """`next_step`, and the prompts that were refused since the last one."""
        self.now += 1
        self.is_launched = False
        output, step = self.next_step()
        self.under_way.append(output)
        for number in (*step.ignored, *step.failed):
            self._drop(number)
        if not self._refused:
            return step
        refused, self._refused = self._refused, []
        self.ends |= dict.fromkeys(refused, IGNORED)
        return step._replace(ignored=[*step.ignored, *refused])

    def launch(self) -> Sequence[Access]:
        """The newest step is being executed. Returns what it accessed, if the adapter can see that."""
        self.is_launched = True
        self._carry_out_aborts()
        return ()

    def complete(
        self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]
    ) -> Sequence[tuple[int, int]]:
        """`fork` and `take_results`; then forget what is over, and carry out the aborts that came within the step."""
        refused = []
        for parent, child in forks:
            if self.fork(parent, child) is False:
                refused.append((parent, child))
                continue
            request = self.requests_by_seq[child] = self.requests_by_seq[parent]
            request.seqs.append(child)
        if refused:
            unborn = {child for _, child in refused}
            sampled = {seq: token for seq, token in sampled.items() if seq not in unborn}
        self.take_results(self.under_way.pop(0), sampled, finished)
        for seq in finished:
            if seq in self.requests_by_seq and not self.goes_on(seq):
                over = self.requests_by_seq.pop(seq)
                over.seqs.remove(seq)
                if not over.seqs:
                    del self.requests[over.number]
        self._carry_out_aborts()
        return refused

    def ended(self) -> dict[int, str]:
        """`ends`, which then begins again; called only if `capabilities.reports_ends`."""
        ended, self.ends = self.ends, {}
        return ended

    def each_ended(self) -> dict[int, str]:
        """`each_end`, which then begins again; called only if `capabilities.reports_each_end`."""
        ended, self.each_end = self.each_end, {}
        return ended

    def delivered(self) -> dict[int, list[int]]:
        """`outputs`, which then begins again; called only if `capabilities.reports_tokens`."""
        outputs, self.outputs = self.outputs, {}
        return outputs

    def num_to_generate(self, request: Request) -> int:
        """How many tokens a sequence of the request generates: what was asked for, if max_model_len allows it."""
        return num_to_generate(len(request.tokens), request.max_tokens, self.config.max_model_len)

    def require_fitting_model(self, num_slots: int) -> None:
        """Raise Unsupported unless the pool holds the slots of one sequence of the greatest length."""
        if sized_function("blocks_for", self.config.block_size)(num_slots) > self.config.num_gpu_blocks:
            raise Unsupported("the longest sequence does not fit the pool")
