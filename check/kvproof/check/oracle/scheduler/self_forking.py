"""Sequences of one prompt of which the scheduler computes the first, and forks it by itself when it sees fit.

The other sequences of such a request exist when it forks; each is a request by itself from then on. One that finds room
shares what is full and computed of its parent's table and has copies of the rest; in terms of the rules it is admitted
with a hit of what it shares, and what is copied counts as computed by it. One that finds no room waits, as if it had
just arrived.
"""

from collections.abc import Iterable, Sequence

from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.scheduler.base import SchedulerJudgeBase
from kvproof.check.oracle.scheduler.requests import Request
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Pair
from kvproof.spec.text import operations

ABOUT = "complete()"


class Forking(SchedulerJudgeBase):
    """What differs for a subject that `forks_itself`."""

    def _to_come(self) -> Iterable[int]:
        """Sequences that requests will fork into."""
        return (child for request in self.requests.values() for child in request.to_come)

    def _forked(self) -> tuple[list[tuple[ExpectedSequence, ExpectedSequence]], list[Pair]]:
        """Who was forked since the last step (parent, child), and what was copied. The children are requests now."""
        if not self.capabilities.forks_itself:
            return [], []
        told, copies = self._call("total-calls", "forked")
        tables = self._call("total-calls", "observe").tables
        born = []
        for parent_id, child_id in told:
            parent = self.seqs.get(parent_id)
            if parent is None or child_id not in (request := self.requests[parent.group.id]).to_come:
                raise Finding("frame-kept", f"{ABOUT}: {child_id} is forked from {parent_id}, and nobody asked for it")
            request.to_come.remove(child_id)
            born.append((parent, self._new_child(parent, child_id, request, tables.get(child_id) is not None)))
        return born, copies

    def _new_child(
        self, parent: ExpectedSequence, child_id: int, request: Request, has_table: bool
    ) -> ExpectedSequence:
        new = Request(-child_id, request.num_prompt, request.max_tokens)
        child = parent.forked(child_id)
        child.group, child.status = new, Status.RUNNING if has_table else Status.WAITING
        if not has_table:
            child.computed = 0
        new.members.append(child)
        self.requests[new.id], self.seqs[child_id] = new, child
        self.coverage["forked by itself" if has_table else "forked, and waits"] += 1
        return child

    def _explain_forks(self, born: Sequence[tuple[ExpectedSequence, ExpectedSequence]], copies: Sequence[Pair]) -> None:
        """The tables of the children; observed already. The copies are made at once, and everyone reads back.

        Where the parent is over by now, and shows no table, what it had is known from the copies.
        """
        size, worker, tables = self.config.block_size, self.worker, self.explainer.observed.tables
        source_of = {target: source for source, target in copies}
        made = set()
        for parent, child in born:
            if child.status is not Status.RUNNING:
                continue
            (table,) = tables[child.id]
            had = parent.observed_table if parent.slot >= 0 else [source_of.get(block, block) for block in table]
            is_own = (old != new for old, new in zip(had, table, strict=False))
            num_shared = next((index for index, own in enumerate(is_own) if own), len(had))
            if len(table) != len(had) or num_shared > parent.computed // size:
                raise Finding(
                    "cow-copied",
                    f"{ABOUT}: fork of {parent.id} with {parent.computed} tokens computed: parent {had}, child {table}",
                )
            made |= set(zip(had[num_shared:], table[num_shared:], strict=False))
            for block in table[num_shared:]:  # what it was cached under is gone, even if it were the same
                self.explainer.run(operations.take(self.state, block), ABOUT)
            self.explainer.admitted(child, num_shared * size, self.config.caching, ABOUT)
            self.explainer.executed([(child, num_shared * size, child.computed)])
            self.coverage["shared with a child"] += num_shared > 0
        if made != set(copies) or len(source_of) != len(copies):
            raise Finding("cow-copied", f"{ABOUT}: copies {sorted(copies)}; the children need {sorted(made)}")
        if made:
            worker.execute(0)
            worker.copies += copies
            self._execute()
