"""Frames of a replay: equal to the specification until the step that breaks, and there only the right cells differ."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvproof.check.counterexample.steps import replay_frames
from kvproof.check.counterexample.store import draw, make_trace, save
from kvproof.check.hosts.time_limit import OutOfTime
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Observation
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.registry import find
from kvproof.reports.frames import Block, EntryFrame, Lane, ReplayFrames, StepFrame
from kvproof.spec.trace import Operation, Trace

Factory = Callable[[], ManagerSubject]

CONFIG = Config(block_size=2, num_gpu_blocks=3)
FORKED: list[Operation] = [("new", 1, (1,), (0, 0, 0)), ("admit", 1, 3), ("run", 0), ("fork", 1, 2)]
APPENDED: list[Operation] = [*FORKED, ("sample", 1, (0, 0)), ("append", 1)]


def filmed(make: Factory, operations: list[Operation], config: Config = CONFIG) -> ReplayFrames:
    finding = Finding("refcount-exact", "as it was found")
    trace = make_trace("examples", Counterexample(config, operations, finding), "walker", 1, make=make)
    return replay_frames(make, trace, Path("one.json"))


def marked(frame: StepFrame) -> dict[str, Any]:
    """What differs in a frame."""
    return {
        "entries": [
            (lane.name, i) for lane in frame.lanes for i, e in enumerate(lane.entries) if e.observed or e.is_wrong
        ],
        "blocks": {block.id: block.differences for block in frame.blocks if block.differences},
        "pools": {pool.name: pool.observed for pool in frame.pools if pool.observed is not None},
    }


NOTHING: dict[str, Any] = {"entries": [], "blocks": {}, "pools": {}}


def test_each_step_has_a_frame_and_those_that_were_explained_differ_nowhere(example: Factory) -> None:
    done = filmed(example, FORKED)
    assert (done.outcome, done.is_refuted, done.problem) == ("nothing is refuted.", False, "")
    assert [frame.step.split("(")[0] for frame in done.frames] == ["open", "new", "admit", "run", "fork"]
    assert [marked(frame) for frame in done.frames] == [NOTHING] * 5
    admitted, run, forked = done.frames[2:]
    first, second = (entry.block for entry in forked.lanes[0].entries)
    assert first is not None
    assert second is not None
    assert admitted.lanes == (Lane("sequence 1", "running", (EntryFrame(first, 2, 0), EntryFrame(second, 1, 0))),)
    computed = (EntryFrame(first, 2, 2), EntryFrame(second, 1, 1))
    assert run.lanes == (Lane("sequence 1", "running", computed),)
    assert forked.lanes == (*run.lanes, Lane("sequence 2", "running", computed))
    blocks = {block.id: block for block in forked.blocks}
    assert blocks[first] == Block(first, 2, "used", num_written=2)
    assert blocks[second] == Block(second, 2, "used", num_written=1)
    assert [block.list for block in forked.blocks].count("free") == 1


def test_a_refcount_that_is_wrong_is_the_cell_that_differs(altered: Callable[..., Factory]) -> None:
    def forgets(self: Any, parent: int, child: int) -> None:
        self.manager.fork(parent, child)
        self.manager.refcounts[self.manager.tables[child][0]] -= 1

    done = filmed(altered(share=forgets), FORKED)
    block = done.frames[-1].lanes[0].entries[0].block
    assert done.outcome.startswith("refcount-exact is refuted at step 4: ")
    assert [marked(frame) for frame in done.frames[:-1]] == [NOTHING] * 4
    assert marked(done.frames[-1]) == NOTHING | {"blocks": {block: ("the subject: refcount 1",)}}
    assert [one.id for one in done.frames[-1].blocks if one.is_named] == [block]


def test_kv_that_was_not_copied_is_marked_in_the_table_and_in_the_block(altered: Callable[..., Factory]) -> None:
    def tells_of_no_copy(self: Any, seq: int, num: int) -> list[tuple[int, int]]:
        self.manager.append(seq)
        return []

    last = filmed(altered(append=tells_of_no_copy), APPENDED, Config(block_size=2, num_gpu_blocks=4)).frames[-1]
    (lane,) = [lane for lane in last.lanes if any(entry.is_wrong for entry in lane.entries)]
    (block,) = [entry.block for entry in lane.entries if entry.is_wrong]
    assert marked(last)["blocks"] == {block: ("holds other KV",)}


def test_kv_of_copies_that_are_still_to_be_made_is_not_compared(altered: Callable[..., Factory]) -> None:
    def tells_of_one_copy(self: Any, seq: int, num: int) -> list[tuple[int, int]]:
        copies = self.manager.append(seq)
        return copies if seq == 1 else []

    operations = [*FORKED, ("fork", 1, 3), ("sample", 1, (0, 0, 0)), ("append", 1)]
    done = filmed(altered(append=tells_of_one_copy), operations, Config(block_size=2, num_gpu_blocks=6))
    assert done.outcome.startswith("cow-copied is refuted")
    assert marked(done.frames[-1]) == NOTHING


def test_kv_is_not_compared_where_the_finding_is_about_counting(altered: Callable[..., Factory]) -> None:
    def counts_a_copy_twice(self: Any) -> list[int]:
        refs, tables = list(self.manager.refcounts), self.manager.tables
        if 2 in tables and tables[1] != tables[2]:
            refs[tables[1][-1]] += 1
        return refs

    make = altered(refcounts=counts_a_copy_twice)
    last = filmed(make, APPENDED, Config(block_size=2, num_gpu_blocks=4)).frames[-1]
    block = last.lanes[0].entries[-1].block
    assert marked(last) == NOTHING | {"blocks": {block: ("the subject: refcount 2",)}}


def test_a_table_of_another_block_is_marked_at_its_entry(altered: Callable[..., Factory], example: Factory) -> None:
    other = 3 - sum(entry.block or 0 for entry in filmed(example, FORKED).frames[-1].lanes[0].entries)

    def shows_another(self: Any) -> dict[int, list[int]]:
        tables = {seq: list(table) for seq, table in self.manager.tables.items()}
        return tables | ({2: [other, *tables[2][1:]]} if 2 in tables else {})

    last = filmed(altered(tables=shows_another), FORKED).frames[-1]
    assert [entry.observed for entry in last.lanes[1].entries] == [f"block {other}", ""]


def test_a_count_that_is_wrong_is_marked_at_the_pool(altered: Callable[..., Factory]) -> None:
    def one_more(self: Any) -> int:
        return len(self.manager.free_blocks) + bool(self.manager.tables)

    last = filmed(altered(num_free=one_more), FORKED).frames[-1]
    assert marked(last)["pools"] == {"GPU": 2}


def test_a_block_that_is_free_and_in_a_table_is_marked() -> None:
    class FreesEarly(OwnPool):
        """What is held is shown as free, too."""

        def observe(self) -> Observation:
            seen = super().observe()
            held = [block for block, refs in enumerate(seen.refs or []) if refs]
            return seen._replace(refs=None, free_ids=[*(seen.free_ids or []), *held])

    config, operations = PoolConfig(num_gpu_blocks=2), [("take", 1, 1)]
    done = filmed(FreesEarly, operations, config)  # type: ignore[arg-type]
    last = done.frames[-1]
    ((entry,),) = [lane.entries for lane in last.lanes]
    assert [lane.name for lane in last.lanes] == ["holder 1"]
    assert marked(last)["blocks"] == {entry.block: ("the subject: free",)}


def test_of_a_large_pool_only_blocks_that_are_not_plainly_free_are_listed(example: Factory) -> None:
    done = filmed(example, FORKED, Config(block_size=2, num_gpu_blocks=1000))
    assert [len(frame.blocks) for frame in done.frames] == [0, 0, 2, 2, 2]


def test_a_subject_that_refuses_the_configuration_gives_a_film_that_says_so(example: Factory) -> None:
    trace = Trace("examples", "read-back", "x", {"block_size": 2, "num_gpu_blocks": 2, "caching": True}, [["reset"]])
    done = replay_frames(example, trace, Path("one.json"))
    assert done.frames == []
    assert done.problem


def test_a_scheduler_is_filmed() -> None:
    operations: list[Operation] = [("add", 1, (1,), (0, 0, 0), 2), ("schedule",), ("launch", (5,)), ("complete", (5,))]
    done = filmed(find("kvproof-scheduler"), operations, SchedulerConfig(block_size=2, num_gpu_blocks=4))
    assert [marked(frame) for frame in done.frames] == [NOTHING] * len(done.frames)
    assert "sequence 1" in {lane.name for frame in done.frames for lane in frame.lanes}


def test_the_page_is_drawn_beside_the_trace_and_named_with_it(altered: Callable[..., Factory], tmp_path: Path) -> None:
    def forgets(self: Any, parent: int, child: int) -> None:
        self.manager.tables[child] = self.manager.tables[parent].copy()

    make = altered(share=forgets)
    found = Counterexample(CONFIG, FORKED, Finding("refcount-exact", "x"))
    trace = make_trace("examples", found, "walker", 1, make=make)
    assert not save(tmp_path, trace).with_suffix(".html").exists()
    path = save(tmp_path, trace, make)
    page = path.with_suffix(".html")
    assert "the subject: refcount 1" in page.read_text()
    page.unlink()
    assert draw(path, trace, make) == page
    assert page.exists()


def test_a_replay_for_which_no_time_is_left_says_so(example: Factory) -> None:
    class Ends(type(example())):  # type: ignore[misc]
        def fork(self, *_: object) -> None:
            raise OutOfTime

    trace = make_trace(
        "examples", Counterexample(CONFIG, FORKED, Finding("refcount-exact", "x")), "walker", 1, make=example
    )
    assert replay_frames(Ends, trace, Path("one.json")).problem == "the time of the run was over before it was repeated"
