"""KV of a prompt comes from elsewhere, within the step that computes the next tokens or in a step before."""

from typing import Any

import pytest
from tests.lawful.broken import HitsWhatIsLoaded
from tests.lawful.loads import Loads

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Admitted, Config, Refused, Unsupported
from kvproof.check.protocol.manager_operations import New
from kvproof.spec.trace import Operation

WITHIN, BEFORE = (Config(block_size=2, num_gpu_blocks=8, caching=True, chunked=True, loads=loads) for loads in (1, 2))
KEY = None, 0, None
LOADED: list[Operation] = [("new", 1, (1,), (0,) * 5, KEY, (), None, None, 4), ("admit", 1, 1)]
SAME_PROMPT: list[Operation] = [("new", 2, (2,), (0,) * 5, KEY, ()), ("admit", 2, 1)]


def judge_of(subject: Any, config: Config, *operations: Operation) -> ManagerJudge:
    """A judge that has done these operations."""
    judge = ManagerJudge(subject, config)
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


def test_a_step_that_loads_computes_what_lies_behind() -> None:
    judge = judge_of(Loads(), WITHIN, *LOADED)
    assert [write[1:] for write in judge.worker.writes] == [(0, 4), (4, 5)]
    assert judge.apply(("run", 0))
    assert judge.seqs[1].computed == 5


def test_a_step_before_computes_nothing() -> None:
    judge = judge_of(Loads(), BEFORE, *LOADED)
    assert [write[1:] for write in judge.worker.writes] == [(0, 4)]
    assert judge.apply(("run", 0))
    assert judge.apply(("extend", 1, 1))
    assert judge.seqs[1].computed == 5


def test_what_was_loaded_is_hit_by_others_and_not_loaded_again() -> None:
    judge = judge_of(Loads(), BEFORE, *LOADED, ("run", 0), *SAME_PROMPT)
    assert judge.seqs[2].hit == 4
    judge = judge_of(Loads(), BEFORE, *LOADED, ("run", 0), ("preempt", 1), ("admit", 1, 1))
    assert (judge.seqs[1].hit, [write[1:] for write in judge.worker.writes]) == (4, [(4, 5)])


def test_the_last_token_of_a_prompt_is_computed() -> None:
    judge = judge_of(Loads(), WITHIN, ("new", 1, (1,), (0,) * 4, KEY, (), None, None, 4), ("admit", 1, 4))
    assert [write[1:] for write in judge.worker.writes] == [(0, 2), (2, 4)]


def test_a_hit_of_what_is_being_loaded_is_right_only_if_the_load_is_over_before_its_step_computes() -> None:
    assert judge_of(HitsWhatIsLoaded(), WITHIN, *LOADED, *SAME_PROMPT, ("run", 0)).seqs[2].hit == 4
    with pytest.raises(Finding, match="being loaded"):
        judge_of(HitsWhatIsLoaded(), BEFORE, *LOADED, *SAME_PROMPT)


class LoadsTooMuch(Loads):
    """It loads a block that is not elsewhere."""

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        done = super().admit(group, num_tokens)
        return done if isinstance(done, Refused) else done._replace(loaded=done.loaded - 2)


def test_an_adapter_that_loads_something_else_than_is_elsewhere_is_wrong() -> None:
    with pytest.raises(AdapterError, match="loads 2 tokens behind a hit of 0, and 4 are elsewhere"):
        judge_of(LoadsTooMuch(), WITHIN, *LOADED)


def test_a_step_before_needs_prompts_in_chunks() -> None:
    with pytest.raises(Unsupported, match="computed in several steps"):
        ManagerJudge(Loads(), Config(block_size=2, num_gpu_blocks=8, loads=2))


def test_a_run_is_made_simpler_by_loading_less() -> None:
    new = New(1, (1,), (0, 0, 0), elsewhere=2)
    simpler = [one.as_tuple() for one in new.simpler()]
    assert simpler[:2] == [("new", 1, (1,), (0, 0, 0)), new.changed(elsewhere=1).as_tuple()]
    assert "2 tokens from elsewhere" in new.text(WITHIN)
