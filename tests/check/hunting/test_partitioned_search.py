"""A search whose states are divided among workers counts and finds what one process does, no matter which is lost."""

import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import chain, count, repeat
from typing import Any

import pytest

from kvproof.audit.faults.edits import Fault
from kvproof.audit.mutation.mutants import mutated
from kvproof.audit.mutation.operators import changed_statement
from kvproof.check.hosts.pool import LocalWorkers
from kvproof.check.hosts.worker_process import LocalActors
from kvproof.check.hosts.workers import NUM_TRIES_MAX, Lost, Make, Request, WorkerLost
from kvproof.check.hunting.partitioned_search import PartitionedReader
from kvproof.check.protocol.scopes import SCOPES, Scope, sizes_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.search.exhaustive import part
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.check.search.exhaustive.specification_space import Continuations
from kvproof.check.search.result import SearchResult

CACHED = Scope(2, num_seqs=2, num_tokens=2, block_size=1, caching=True, fork=False)
RULES = Scope(2, num_seqs=2, num_tokens=2, block_size=1, level="rules")
IN_FLIGHT = Scope(2, num_seqs=2, num_tokens=3, num_flights=2)
STATES_MAX = 100_000
NEVER = 10**9


class ActorsHere:
    """Actors in this process. How many requests are answered before one is lost: the next number of `losses`."""

    def __init__(self, num: int, make: Make, losses: Iterator[int]) -> None:
        self.num, self.make, self.losses, self.left = num, make, losses, next(losses)
        self.kept = [make(number, num) for number in range(num)]
        self.num_lost = 0

    @property
    def process_ids(self) -> list[int]:
        return []

    def answers(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        return {number: self.answer(number, *request) for number, request in requests.items()}

    def answer(self, number: int, name: str, arguments: tuple[Any, ...]) -> Any:
        answer = getattr(self.kept[number], name)(*pickle.loads(pickle.dumps(arguments)))
        self.left -= 1
        if self.left < 0:
            self.left, self.num_lost, self.kept[number] = next(self.losses), self.num_lost + 1, None
            return Lost.LOST
        return answer

    def replace(self, number: int) -> None:
        self.kept[number] = self.make(number, self.num)

    def close(self) -> None:
        """There is no process."""


class Here(LocalWorkers):
    """Workers in this process that lose requests at drawn moments. num_lost: how many."""

    def __init__(self, num: int, losses: Iterator[int] | None = None) -> None:
        self.num, self.losses = num, losses or repeat(NEVER)

    def actors(self, make: Make) -> Any:
        self.made = ActorsHere(self.num, make, self.losses)
        return self.made


def drawn(seed: int) -> Iterator[int]:
    draw = random.Random(seed)
    while True:
        yield draw.randrange(8, 60)


def facts(found: SearchResult) -> SearchResult:
    return replace(found, seconds=0.0, text="")


@cache
def searched(scope: Scope) -> SearchResult:
    """What one process finds. Several tests read it."""
    return facts(explore_specification(scope, seconds=600))


@pytest.mark.parametrize("scope", [CACHED, RULES, IN_FLIGHT])
def test_the_counts_are_those_of_one_process(scope: Scope) -> None:
    expected = searched(scope)
    assert expected.is_exhausted
    assert facts(PartitionedReader(Here(3), STATES_MAX)(scope, seconds=60)) == expected


def test_a_part_that_is_lost_is_made_again_and_nothing_is_counted_twice() -> None:
    workers = Here(3, drawn(1))
    assert facts(PartitionedReader(workers, STATES_MAX)(RULES, seconds=60)) == searched(RULES)
    assert workers.made.num_lost > 3


def test_a_part_that_is_lost_again_and_again_ends_the_search() -> None:
    losses = iter([20, *[0] * 9])
    with pytest.raises(WorkerLost, match="3 workers ended with the same part of the states in one level"):
        PartitionedReader(Here(2, losses), STATES_MAX)(RULES, seconds=60)


# What breaks a claim in a state that was reached, and what breaks an obligation in a firing.
BROKEN = [
    changed_statement("append", "state.num_blocks[seq] += 1", "state.num_blocks[seq] += 2"),
    changed_statement("unpin", "state.pins[block] -= 1", "state.pins[block] = 0"),
]


@pytest.mark.parametrize("losses", [repeat(NEVER), drawn(2)], ids=["nobody is lost", "parts are lost"])
@pytest.mark.parametrize("mutant", BROKEN, ids=lambda mutant: str(mutant.row))
def test_a_finding_has_the_path_and_the_counts_of_one_process(
    mutant: Fault, losses: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = replace(RULES, num_flights=2 * (mutant.row == "unpin"))

    def space_of(scope: Scope, continuations: Continuations | None = None) -> RuleSpace:
        return RuleSpace(scope, mutated(mutant, sizes_of(scope)), continuations)

    monkeypatch.setattr(part, "space_of", space_of)
    expected = explore_specification(scope, seconds=60, space=space_of(scope))
    found = PartitionedReader(Here(3, losses), STATES_MAX)(scope, seconds=60)
    assert expected.counterexample is not None
    assert found.counterexample is not None
    assert found.counterexample.operations == expected.counterexample.operations
    assert found.counterexample.finding.args == expected.counterexample.finding.args
    assert replace(facts(found), counterexample=None) == replace(facts(expected), counterexample=None)


def test_a_part_that_is_full_ends_the_search_with_its_number_of_states() -> None:
    found = PartitionedReader(Here(2), 20)(RULES, seconds=60)
    assert not found.is_exhausted
    assert (
        f"because a part has reached its 20 states: 2 parts of at most 20 states hold {found.num_states}" in found.text
    )


def test_effort_and_time_that_are_used_up_are_not_exhausted() -> None:
    assert not PartitionedReader(Here(2), STATES_MAX)(RULES, seconds=60, max_transitions=10).is_exhausted
    assert not PartitionedReader(Here(2), STATES_MAX)(RULES, seconds=0.0).is_exhausted


def test_more_identities_than_a_number_can_name_are_refused() -> None:
    with pytest.raises(UsageError, match="too many to share"):
        PartitionedReader(Here(2), STATES_MAX)(Scope(64, num_seqs=16, num_tokens=64), seconds=1)


# Both readers ----------------------------------------------------------------------------------------------------

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@needs_compiler
def test_states_of_the_whole_search_in_c_are_compared_with_python(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.check.search.exhaustive.c_reader import comparison

    compared: list[list[bytes]] = []
    monkeypatch.setattr(comparison, "compare_states", lambda _, strings: compared.append(strings))

    def search(losses: Iterator[int]) -> ActorsHere:
        workers = Here(1, losses)
        assert PartitionedReader(workers, STATES_MAX, 1 << 30)(SCOPES["tables-4x3x6"], seconds=60).is_exhausted
        made: ActorsHere = workers.made
        return made

    num_requests = NEVER - search(repeat(NEVER)).left
    assert search(chain([num_requests - 1], repeat(NEVER))).num_lost == 1  # the part is lost when it is asked for them
    assert [len(set(strings)) for strings in compared] == [15, 15]


@needs_compiler
def test_a_state_that_leads_elsewhere_in_python_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.check.search.exhaustive.c_reader import comparison
    from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC

    reached = SpecificationInC.successors

    def with_one_missing(spec: SpecificationInC, string: bytes) -> tuple[list[bytes], int]:
        strings, finding = reached(spec, string)
        return strings[:-1], finding

    monkeypatch.setattr(comparison, "compare_searches", lambda *_: 0)
    monkeypatch.setattr(SpecificationInC, "successors", with_one_missing)
    with pytest.raises(comparison.ReadersDiffer, match="only Python"):
        PartitionedReader(Here(1), STATES_MAX, 1 << 30)(SCOPES["tables-4x3x6"], seconds=60)


# Processes -------------------------------------------------------------------------------------------------------


class Killing(LocalWorkers):
    """Kills the process of an actor that has just got states of others. moments: which times of these."""

    def __init__(self, num: int, moments: Iterable[int]) -> None:
        super().__init__(num)
        self.moments, self.num_killed = frozenset(moments), 0

    def actors(self, make: Make) -> LocalActors:
        made, answers, calls = super().actors(make), LocalActors.answers, count(1)

        def killing_answers(requests: Mapping[int, Request]) -> dict[int, Any]:
            given = [number for number, (name, arguments) in requests.items() if name == "round" and arguments[0]]
            if given and next(calls) in self.moments:
                os.kill(made.process_ids[given[0]], signal.SIGKILL)
                self.num_killed += 1
            return answers(made, requests)

        made.answers = killing_answers  # type: ignore[method-assign]
        return made


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4))
def test_processes_that_are_killed_change_nothing(seed: int) -> None:
    expected = searched(SCOPES["rules-cache"])
    with closing(Killing(2, random.Random(seed).sample(range(1, 12), NUM_TRIES_MAX - 1))) as workers:
        found = PartitionedReader(workers, STATES_MAX)(SCOPES["rules-cache"], seconds=600)
    assert facts(found) == expected
    assert workers.num_killed == NUM_TRIES_MAX - 1


@pytest.mark.long
@pytest.mark.timeout(600)
@needs_compiler
@pytest.mark.parametrize("name", ["rules-cache", "flights", "cache-and-swap", "tables-6x4x8"])
def test_parts_in_c_count_what_one_process_in_c_counts(name: str) -> None:
    from kvproof.check.search.exhaustive.c_reader.exploration import explore_in_c

    expected = facts(explore_in_c(SCOPES[name], seconds=600))
    with closing(LocalWorkers(3)) as workers:
        found = PartitionedReader(workers, STATES_MAX, 1 << 30)(SCOPES[name], seconds=600)
    assert facts(found) == expected
    assert found.text.startswith(f"exhausted: 3 parts of at most 100,000 states hold {found.num_states:,} states and ")


@pytest.mark.long
@pytest.mark.timeout(600)
@needs_compiler
def test_a_part_in_c_that_is_killed_is_made_again_and_nothing_is_counted_twice() -> None:
    from kvproof.check.search.exhaustive.c_reader.exploration import explore_in_c

    with closing(Killing(3, (5, 9))) as workers:
        found = PartitionedReader(workers, STATES_MAX, 1 << 30)(SCOPES["rules-cache"], seconds=600)
    assert facts(found) == facts(explore_in_c(SCOPES["rules-cache"], seconds=600))
    assert workers.num_killed == 2


BROKEN_FORK = """
import ast, copy
from functools import partial
from kvproof.spec import syntax_trees
for found in (syntax_trees.functions(), syntax_trees.functions(syntax_trees.BLOCK_MANAGERS)):
    function, file = found["fork"]
    function = copy.deepcopy(function)
    function.body = [one for one in function.body if not ast.unparse(one).startswith("state.refcount")]
    found["fork"] = function, file
from kvproof.check.protocol.scopes import SCOPES
from kvproof.check.hunting.partitioned_search import PartitionedReader
from kvproof.check.search.exhaustive.c_reader import exploration
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.hosts.pool import LocalWorkers
if __name__ != "__main__":
    exploration.NUM_COMPARED = 0
else:
    exploration.NUM_COMPARED = 0
    scope = SCOPES["tables-4x3x6"]
    expected = explore_specification(scope, seconds=60).counterexample
    found = PartitionedReader(LocalWorkers(2), 10**6, 1 << 30)(scope, seconds=60).counterexample
    assert found is not None and expected is not None
    assert len(found.operations) == len(expected.operations)
    assert found.finding.args[0] == expected.finding.args[0]
"""


@pytest.mark.long
@needs_compiler
def test_a_finding_of_parts_in_c_has_a_path_as_short_as_that_of_python(tmp_path: Any) -> None:
    (tmp_path / "broken_fork.py").write_text(BROKEN_FORK)  # a file, so that the processes import it too
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "broken_fork.py"], cwd=tmp_path, env=environment, check=True, timeout=300)
