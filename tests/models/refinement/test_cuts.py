"""Loops that are cut: what a loop carries, leaves out or ends early is noticed, and a false claim about it too."""

import textwrap
from collections.abc import Iterator
from dataclasses import replace

import pytest
import z3

from kvproof.audit.faults.planting import faulty
from kvproof.impl.cached_blocks import CachedBlocks
from kvproof.models.refinement import cached_loops
from kvproof.models.refinement.abstraction import Code
from kvproof.models.refinement.cuts import Clause, Moment
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import NEXT, NO_STATE, Call, Simulation, explore, obligations

LOOP = """        last_accessed = self.last_accessed
        for block_id in block_ids:
            if now > last_accessed[block_id]:
                last_accessed[block_id] = now
"""


def simulation(body: str = LOOP) -> Simulation:
    """That of `record_access`, with another body."""
    text = textwrap.indent(textwrap.dedent(body).strip("\n") + "\n", "        ")
    code = Code() if text == LOOP else Code(cached=faulty(CachedBlocks, LOOP, text))
    setting = Setting(code=code)
    found = next(one for one in cached_loops.simulations(setting) if ".record_access" in one.subject)
    return replace(found, everywhere=setting.everywhere)


def not_proved(one: Simulation) -> Iterator[str]:
    for obligation in obligations(one):
        solver = z3.SimpleSolver()
        solver.set(auto_config=False, mbqi=False, rlimit=4_000_000)
        solver.add(*(known.formula for known in obligation.hypotheses), obligation.negated_goal())
        if solver.check() != z3.unsat:
            yield obligation.claim


def test_a_loop_has_a_path_through_one_iteration_and_one_behind_all() -> None:
    endings = [one.ending for one in explore(simulation())]
    assert sorted(endings) == sorted([NEXT, NEXT, "raises IndexError", "returns"])
    assert list(not_proved(simulation())) == []


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (
            """
            last_accessed, before = self.last_accessed, -1
            for block_id in block_ids:
                if now > last_accessed[block_id] and block_id != before + 5:
                    last_accessed[block_id] = now
                before = block_id
            """,
            "goes on: nothing else has changed",
        ),
        (
            """
            last_accessed, before = self.last_accessed, None
            for block_id in block_ids:
                if now > last_accessed[block_id]:
                    last_accessed[block_id] = now
                before = block_id
            """,
            "goes on: before is as it was",
        ),
        (
            """
            for block_id in block_ids:
                if now > self.last_accessed[block_id]:
                    self.last_accessed[block_id] = now
                self.listed = block_id
            """,
            "goes on: CachedBlocks.listed is as it was",
        ),
        (
            """
            for block_id in block_ids:
                self.last_accessed = self.last_accessed.copy()
                if now > self.last_accessed[block_id]:
                    self.last_accessed[block_id] = now
            """,
            "goes on: CachedBlocks.last_accessed is as it was",
        ),
        (
            """
            times = self.last_accessed.copy()
            for block_id in block_ids:
                if now > times[block_id]:
                    times[block_id] = now
                    self.last_accessed[block_id] = now
            """,
            "goes on: nothing else has changed",
        ),
        (
            """
            for block_id in block_ids:
                if now > self.last_accessed[block_id]:
                    self.last_accessed[block_id] = now
                    self.refcounts[block_id] += 0 * block_id + 1
            """,
            "goes on: nothing else has changed",
        ),
        (
            """
            for block_id in block_ids:
                if now > self.last_accessed[block_id]:
                    self.last_accessed[block_id] = now
                if block_id == 1000:
                    return
            """,
            f"returns within a loop: {NO_STATE}",
        ),
        (
            """
            for block_id in block_ids:
                if now > self.last_accessed[block_id]:
                    self.last_accessed[block_id] = now
            for block_id in block_ids:
                pass
            """,
            "a loop of any length has no claim about what is so far",
        ),
        (
            """
            seen = []
            for block_id in block_ids:
                if now > self.last_accessed[block_id]:
                    self.last_accessed[block_id] = now
                seen.append(block_id)
            """,
            "in seen something could go from one iteration of the loop to the next",
        ),
        (
            """
            for block_id in iter(block_ids):
                if now > self.last_accessed[block_id]:
                    self.last_accessed[block_id] = now
            """,
            "gone over by something else than one for statement",
        ),
        (
            """
            for block_id in self.last_accessed:
                self.last_accessed[block_id] = now
            """,
            "the loop may change what it goes over",
        ),
        (
            """
            self.last_accessed[0] = now
            for block_id in block_ids:
                if now > self.last_accessed[block_id]:
                    self.last_accessed[block_id] = now
            """,
            "begins: each block so far has at least that time, and no other changes",
        ),
        (
            """
            for block_id in block_ids:
                if now > self.last_accessed[block_id]:
                    self.last_accessed[block_id] = now
            self.last_accessed[0] = now
            """,
            "returns: each block accessed has at least that time, and no other changes",
        ),
    ],
)
def test_what_is_not_true_of_all_iterations_is_not_proved(body: str, what: str) -> None:
    found = list(not_proved(simulation(body)))
    assert any(what in one for one in found), found


def with_clause(clause: Clause) -> Simulation:
    """The simulation of the code as it is, with one more clause about what is true so far."""
    one = simulation()

    def start() -> Call:
        call = one.start()
        (loop,) = call.loops

        def so_far(now: Moment) -> Iterator[Clause]:
            yield from loop.so_far(now)
            yield clause

        return replace(call, loops=(replace(loop, so_far=so_far),))

    return replace(one, start=start)


def test_a_clause_that_contradicts_itself_is_not_proved_where_the_loop_begins() -> None:
    """Everything follows from it behind the loop, and nowhere else."""
    found = list(not_proved(with_clause(Clause("nothing", "well-defined", lambda number: number != number))))
    assert [one for one in found if "begins: nothing" in one]
    assert not [one for one in found if one.startswith("returns: each block accessed")]


def test_a_clause_that_an_iteration_breaks_is_not_proved_where_it_goes_on() -> None:
    one = simulation()

    def start() -> Call:
        call = one.start()
        (loop,) = call.loops

        def so_far(now: Moment) -> Iterator[Clause]:
            yield from loop.so_far(now)
            yield Clause("fewer than five are done", "well-defined", lambda _: now.done < 5)

        return replace(call, loops=(replace(loop, so_far=so_far),))

    found = list(not_proved(replace(one, start=start)))
    assert [claim for claim in found if "goes on: fewer than five are done" in claim]
    assert not [claim for claim in found if "begins: fewer than five are done" in claim]
