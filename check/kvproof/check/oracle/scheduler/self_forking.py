"""Schedulers that compute one sequence of a request, and later fork it into the others by themselves.

Until then the other sequences do not exist. After the fork each is a request of its own. A child that finds room shares
the full, computed blocks of its parent and has copies of the rest: it is explained as an admission with a hit of what
it shares, and what is copied counts as computed. A child that finds no room waits, as if it had just arrived.
"""

from collections.abc import Sequence

from kvproof.check.oracle.computed import explain_step
from kvproof.check.oracle.expected import ExpectedSequence, Status
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.oracle.scheduler.base import COMPLETE, ExpectedRequest, SchedulerState
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Pair
from kvproof.spec.text import operations

Birth = tuple[ExpectedSequence, ExpectedSequence]  # parent, child


def born_since(state: SchedulerState) -> tuple[list[Birth], list[Pair]]:
    """The forks since the last step, and the copies made for them. From now on the children are requests."""
    if not state.capabilities.forks_itself:
        return [], []
    forks, copies = state.call("total-calls", "forked")
    tables = state.call("total-calls", "observe").tables
    born = []
    for parent_id, child_id in forks:
        parent = state.seqs.get(parent_id)
        if parent is None or child_id not in (request := state.requests[parent.group.id]).to_come:
            sentence = f"{child_id} is forked from {parent_id}, and nobody asked for it"
            raise Finding("frame-kept", sentence, call=COMPLETE, sequence=f"sequence {child_id}")
        request.to_come.remove(child_id)
        born.append((parent, _new_child(state, parent, child_id, request, bool(tables.get(child_id)))))
    return born, copies


def _new_child(
    state: SchedulerState, parent: ExpectedSequence, child_id: int, request: ExpectedRequest, has_table: bool
) -> ExpectedSequence:
    new = ExpectedRequest(-child_id, request.num_prompt, request.max_tokens)
    child = parent.forked(child_id)
    child.group, child.status = new, Status.RUNNING if has_table else Status.WAITING
    if not has_table:
        child.computed = 0
    state.num_arrived += 1
    new.arrival = state.num_arrived
    new.members.append(child)
    state.requests[new.id], state.seqs[child_id] = new, child
    state.coverage["forked by itself" if has_table else "forked, and waits"] += 1
    return child


def explain_births(state: SchedulerState, born: Sequence[Birth], copies: Sequence[Pair]) -> None:
    """Explain the tables of the children, which are observed already; execute the copies, and read back.

    If the parent is over by now and shows no table, its table is known from the copies.
    """
    worker, explainer = state.worker, state.explainer
    source_of = {target: source for source, target in copies}
    needed = set[Pair]()
    for parent, child in born:
        if child.status is not Status.RUNNING:
            continue
        table = explainer.shown_table(child, COMPLETE)
        old = parent.observed_table if parent.slot >= 0 else [source_of.get(block, block) for block in table]
        copied = explain_birth(explainer, parent, old, child, COMPLETE)
        needed |= copied
        state.coverage["shared with a child"] += len(copied) < len(old)
    require_copies(needed, copies, COMPLETE)
    if needed:
        worker.execute(0)
        worker.copies += copies
        state.execute()


def explain_birth(
    explainer: Explainer, parent: ExpectedSequence, old: list[int], child: ExpectedSequence, context: str
) -> set[Pair]:
    """Explain the table of one child, which is observed already. Returns the copies that the child needs.

    old: the table of the parent.
    """
    size, config = explainer.block_size, explainer.config
    table = explainer.shown_table(child, context)
    differs = (before != after for before, after in zip(old, table, strict=False))
    num_shared = next((index for index, is_own in enumerate(differs) if is_own), len(old))
    if len(table) != len(old) or num_shared > parent.computed // size:
        raise Finding(
            "cow-copied",
            f"fork of {parent.id} with {parent.computed} tokens computed: parent $expected, child $observed",
            call=context,
            expected=old,
            observed=table,
            sequence=child.name,
        )
    for block in table[num_shared:]:  # its cached content is lost, even if it is the same
        explainer.run(operations.take(explainer.state, block), context)
    explainer.admitted(child, num_shared * size, config.caching, context)
    explain_step(explainer, [(child, num_shared * size, child.computed)])
    return set(zip(old[num_shared:], table[num_shared:], strict=False))


def require_copies(needed: set[Pair], copies: Sequence[Pair], context: str) -> None:
    """The copies are exactly those that the children need, to different blocks. Raises Finding."""
    if needed != set(copies) or len({target for _, target in copies}) != len(copies):
        sentence = "copies $observed; the children need $expected"
        raise Finding("cow-copied", sentence, call=context, expected=sorted(needed), observed=sorted(copies))
