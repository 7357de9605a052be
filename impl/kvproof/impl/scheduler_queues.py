"""The requests of a scheduler: three queues in the order of arrival, and how requests arrive, fork and end.

A request is in one of `waiting`, `running` and `swapped`, or it has ended. It keeps its place in the order of arrival,
so that the request that arrived first is served first and preempted last.

A request may be aborted at any time. While a step is under way, from `schedule` to `free_finished_seq_groups` or the
next `schedule`, the worker still writes to the blocks of the scheduled requests. So an aborted request ends at once,
and its blocks are released at the end of the step.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter

from .block_manager import SelfAttnBlockSpaceManager
from .errors import InvalidValueError
from .scheduler_config import SchedulerConfig
from .sequence import Sequence, SequenceGroup, SequenceStatus

_arrival = itemgetter(0)


class ArrivalQueue:
    """A queue of groups in the order of arrival."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, SequenceGroup]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[SequenceGroup]:
        return iter([group for _, group in self._entries])

    def __getitem__(self, index: int) -> SequenceGroup:
        return self._entries[index][1]

    def __contains__(self, group: object) -> bool:
        return any(group is other for _, other in self._entries)

    def num_running_seqs(self) -> int:
        return sum([seq.status == SequenceStatus.RUNNING for _, group in self._entries for seq in group.seqs])

    def add(self, arrival: int, group: SequenceGroup) -> None:
        """Insert a group at its place in the order of arrival."""
        entries = self._entries
        if not entries or entries[-1][0] < arrival:
            entries.append((arrival, group))
        else:
            entries.insert(bisect_left(entries, arrival, key=_arrival), (arrival, group))

    def remove(self, arrival: int) -> bool:
        """Remove the group with this arrival number; returns False if it is not in the queue."""
        index = bisect_left(self._entries, arrival, key=_arrival)
        if index == len(self._entries) or self._entries[index][0] != arrival:
            return False
        del self._entries[index]
        return True


class SchedulerQueues:
    """The unfinished requests, and the queue of each."""

    def __init__(self, scheduler_config: SchedulerConfig, block_manager: SelfAttnBlockSpaceManager) -> None:
        self.scheduler_config, self.block_manager = scheduler_config, block_manager
        self.waiting, self.running, self.swapped = ArrivalQueue(), ArrivalQueue(), ArrivalQueue()
        self._requests: dict[str, tuple[int, SequenceGroup]] = {}  # every unfinished request, with its arrival number
        self._num_arrived = 0
        self._is_step_under_way = False
        self._ended_in_step: list[SequenceGroup] = []

    # ---- coming ----

    def add_seq_group(self, seq_group: SequenceGroup) -> None:
        """Add a request. Raises InvalidValueError for a request that could never be admitted."""
        name, seqs, manager = seq_group.request_id, seq_group.seqs, self.block_manager
        if name in self._requests:
            raise InvalidValueError("request_id", name, "an unfinished request has this id already")
        if not seqs or any(seq.status != SequenceStatus.WAITING for seq in seqs):
            raise InvalidValueError("sequences", len(seqs), "a new request must have waiting sequences, and no others")
        tokens, extra = seqs[0].get_token_ids(), seqs[0].extra_hash()
        if not tokens or any(seq.get_token_ids() != tokens or seq.extra_hash() != extra for seq in seqs):
            raise InvalidValueError(
                "prompt", tokens, f"the sequences of {name} must have the same prompt of at least one token"
            )
        if seq_group.is_encoder_decoder() and (manager.enable_caching or manager.sliding_window is not None):
            raise InvalidValueError(
                "request", name, "an encoder cannot be combined with prefix caching or a sliding window"
            )
        self._num_arrived += 1
        self._requests[seq_group.request_id] = (self._num_arrived, seq_group)
        self.waiting.add(self._num_arrived, seq_group)

    def fork_seq(self, parent_seq: Sequence, child_seq: Sequence) -> None:
        """Let a child share every block of its running parent; the caller adds the child to the group.

        Raises InvalidValueError if the group could not run with another sequence.
        """
        for group in self.running:
            if any(seq is parent_seq for seq in group.seqs):
                num_seqs = 1 + sum(seq is not child_seq for seq in group.get_unfinished_seqs())
                if num_seqs > self.scheduler_config.max_num_seqs:
                    limit = f"a group of more than {self.scheduler_config.max_num_seqs} could never be scheduled"
                    raise InvalidValueError("sequences of a group", num_seqs, limit)
        self.block_manager.fork(parent_seq, child_seq)

    # ---- leaving ----

    def abort_seq_group(self, request_id: str | Iterable[str]) -> None:
        """End requests in any queue; unknown ones are ignored."""
        for one in (request_id,) if isinstance(request_id, str) else tuple(request_id):
            if one in self._requests:
                self._end(self._requests[one][1], SequenceStatus.FINISHED_ABORTED)

    def free_seq(self, seq: Sequence) -> None:
        self.block_manager.free(seq)

    def free_finished_seq_groups(self) -> None:
        """End the step, after its results are recorded: remove finished sequences and release their blocks."""
        self._end_step()
        for group in self.running:
            finished = group.get_finished_seqs()
            for seq in finished:
                self.block_manager.free(seq)
            if len(finished) == len(group.seqs):
                self.running.remove(self._requests.pop(group.request_id)[0])
                self.block_manager.free_cross(group)

    def _end(self, group: SequenceGroup, status: SequenceStatus) -> None:
        """End a request that has not finished by itself."""
        arrival, _ = self._requests.pop(group.request_id)
        self._leave_queue(arrival)
        for seq in group.get_unfinished_seqs():
            seq.status = status
        if self._is_step_under_way:
            self._ended_in_step.append(group)
        else:
            self._free(group)

    def _leave_queue(self, arrival: int) -> None:
        any(queue.remove(arrival) for queue in (self.running, self.waiting, self.swapped))

    def _free(self, group: SequenceGroup) -> None:
        for seq in group.seqs:
            self.block_manager.free(seq)
        self.block_manager.free_cross(group)

    def _end_step(self) -> None:
        """The worker has executed the step: release the blocks of requests that ended in the meantime."""
        self._is_step_under_way = False
        for group in self._ended_in_step:
            self._free(group)
        self._ended_in_step.clear()

    # ---- counting ----

    def has_unfinished_seqs(self) -> bool:
        return bool(self._requests)

    def get_num_unfinished_seq_groups(self) -> int:
        return len(self._requests)
