"""A change that a call makes and the judge sees only after a later call is blamed on the call that made it."""

from dataclasses import replace

import pytest

from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.oracle.earlier_change import earlier_change
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.method_called import Blame, method_called
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, Observation, Refused, Reserved, Scheduled
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.spec.trace import CodePlace, EarlierChange, EnteredCode, Operation

CONFIG = Config(block_size=2, num_gpu_blocks=4, caching=True)
STEP: list[Operation] = [("new", 1, (1,), (0, 0)), ("admit", 1, 2), ("run", 1)]
GROWN: list[Operation] = [*STEP, ("sample", 1, (0,)), ("append", 1)]


class Hidden:
    """What a manager keeps beside its tables."""

    is_moved = False

    def computed(self) -> None:
        self.publish()

    def publish(self) -> None:
        self.move()

    def move(self) -> None:
        self.is_moved = True


class Moves(BuiltIn):
    """Shows other tables once a call has moved its blocks."""

    def open(self, config: Config) -> None:
        super().open(config)
        self.hidden = Hidden()

    def observe(self) -> Observation:
        seen = super().observe()
        moved = {seq: [[block + 1 for block in table] for table in tables] for seq, tables in seen.tables.items()}
        return seen._replace(tables=moved) if self.hidden.is_moved else seen


class MovesInStep(Moves):
    def step_done(self, step: list[Scheduled]) -> None:
        super().step_done(step)
        self.hidden.computed()


class MovesWhenLookedUp(Moves):
    def hits(self, group: int) -> int:
        if group == 2:
            self.hidden.publish()
        return super().hits(group)


class MovesInGrowth(Moves):
    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        answer = super().reserve(seq, num_tokens)
        self.hidden.move()
        return answer


def blamed(subject: BuiltIn, operations: list[Operation]) -> tuple[Finding, Blame]:
    judge = ManagerJudge(subject, CONFIG)
    for operation in operations[:-1]:
        judge.apply(operation)
    with pytest.raises(Finding) as refuted:
        judge.apply(operations[-1])
    return refuted.value, method_called(subject, Counterexample(CONFIG, operations, refuted.value))


def test_a_table_that_changes_when_a_step_is_done_is_blamed_on_the_step_and_not_on_the_question_after_it() -> None:
    found, blame = blamed(MovesInStep(), GROWN)
    assert found.text.startswith("can_append only asks, but tables went")
    assert blame.method is not None
    assert blame.method.function == "Hidden.computed"
    assert blame.earlier == EarlierChange(3, "step_done")


def test_the_functions_that_the_call_entered_are_named_innermost_first_with_their_lines() -> None:
    _, blame = blamed(MovesInStep(), GROWN)
    assert [one.function for one in blame.entered] == ["Hidden.move", "Hidden.publish", "Hidden.computed"]
    assert [one.last_line - one.line for one in blame.entered] == [1, 1, 1]


def test_a_table_that_a_look_up_changes_is_blamed_on_the_look_up() -> None:
    waiting: list[Operation] = [*STEP, ("new", 2, (2,), (0, 0)), ("lookup", 2)]
    found, blame = blamed(MovesWhenLookedUp(), waiting)
    assert found.text.startswith("a look-up only asks, but tables went")
    assert blame.earlier == EarlierChange(5, "hits")
    assert "Hidden.move" in [one.function for one in blame.entered]


def test_a_call_that_may_change_tables_has_no_earlier_one_to_blame() -> None:
    found, blame = blamed(MovesInGrowth(), GROWN)
    assert (found.property, blame.earlier) == ("frame-kept", None)
    assert "Hidden.move" in [one.function for one in blame.entered]


def test_a_step_that_may_exchange_blocks_by_declaration_is_not_blamed() -> None:
    class Declares(MovesInStep):
        capabilities = replace(BuiltIn.capabilities, dedups_after_step=True)

        def observe(self) -> Observation:
            seen = BuiltIn.observe(self)
            return seen._replace(free=(seen.free[0] - self.hidden.is_moved, 0))

    found, _ = blamed(Declares(), STEP)
    assert found.property == "lists-agree"
    assert earlier_change(Declares(), Counterexample(CONFIG, STEP, found)) is None


def test_where_a_run_breaks_can_be_sent_to_another_process() -> None:
    place = CodePlace("M.fork", "manager.py", 7)
    blame = Blame(place, [place], EarlierChange(3, "hits"), [EnteredCode("M.fork", "manager.py", 7, 9, [8])])
    assert unpack(pack(blame)) == blame
