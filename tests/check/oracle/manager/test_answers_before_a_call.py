"""What a manager promises before a call, and what the judge makes of promises that are too large or too small."""

import time
from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.counterexample.steps import narrated
from kvproof.check.hosts.time_limit import time_limit
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.method_called import method_called
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Admission, Admitted, Config, Observation, Refused, Reserved
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.spec.trace import Operation

TWO_GROUPS: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("new", 2, (2,), (0,) * 4), ("admit", 2, 4)]


def run(subject: BuiltIn, config: Config, operations: list[Operation]) -> Finding:
    judge = ManagerJudge(subject, config)
    for operation in operations[:-1]:
        judge.apply(operation)
    with pytest.raises(Finding) as refuted:
        judge.apply(operations[-1])
    return refuted.value


class Eager(BuiltIn):
    """Says OK whatever is held back."""

    def can_admit(self, group: int) -> Admission:
        return Admission["OK"]  # by a function of the standard library, which is no method of the manager


def test_an_ok_that_takes_what_the_watermark_holds_back_is_refuted() -> None:
    found = run(Eager(), Config(block_size=1, num_gpu_blocks=6, watermark=0.34), TWO_GROUPS)
    assert found.property == "admission-sound"
    assert found.text == ("can_admit(2) says OK, but needs 4 blocks of 5 free, and 2 are held back by the watermark")


class SaysYes(Eager):
    """Promises every call."""

    can_swap_out = can_swap_in = Eager.can_admit

    def can_append(self, group: int) -> bool:
        return True


class Failing(BuiltIn):
    """Fails in a call that it has promised and that fits."""

    def admit(self, group: int, num_tokens: int) -> Any:
        raise RuntimeError("broken")


TWO_TOKENS: list[Operation] = [("new", 1, (1,), (0,) * 2), ("admit", 1, 2)]
OUT_AND_ANOTHER: list[Operation] = [
    *(*TWO_TOKENS, ("run", 1), ("swap_out", 1), ("run", 1)),
    *(("new", 2, (2,), (0,)), ("admit", 2, 1), ("run", 1)),
]


@pytest.mark.parametrize(
    ("subject", "config", "operations", "promise", "method"),
    [
        (SaysYes, Config(1, 1), TWO_TOKENS, "can_admit(1)", "Eager.can_admit"),
        (
            SaysYes,
            Config(2, 1),
            [*TWO_TOKENS, ("run", 1), ("sample", 1, (0,)), ("append", 1)],
            "can_append(1)",
            "SaysYes.can_append",
        ),
        (SaysYes, Config(1, 4, 1), [*TWO_TOKENS, ("run", 1), ("swap_out", 1)], "can_swap_out(1)", "Eager.can_admit"),
        (SaysYes, Config(1, 2, 2), [*OUT_AND_ANOTHER, ("swap_in", 1)], "can_swap_in(1)", "Eager.can_admit"),
        (Failing, Config(1, 2), TWO_TOKENS, "", "Failing.admit"),
    ],
    ids=["admit", "append", "swap_out", "swap_in", "a call that fits"],
)
def test_the_promise_is_at_fault_if_the_call_could_not_succeed(
    subject: type[BuiltIn], config: Config, operations: list[Operation], promise: str, method: str
) -> None:
    found = run(subject(), config, operations)
    place = method_called(subject(), Counterexample(config, operations, found)).method
    assert (found.property, found.promise) == ("admission-sound", promise)
    assert place is not None
    assert place.function == method
    text = narrated(unpack(pack(found)), config, operations)
    expected = f"{promise.replace('(', '(group ')} said OK, but " if promise else "admit(group 1) raised"
    assert text.startswith(expected)


HELPER: dict[str, Any] = {"__name__": "kvproof.check.subjects.example"}
exec("def helped(call, *arguments):\n    return call(*arguments)", HELPER)  # in a file of kvproof's own adapters


class Lazy:
    """A manager that is asked to free a sequence and keeps it."""

    def forget(self, seq: int) -> None:
        """Nothing is freed."""


class Helped(BuiltIn):
    """Calls its manager through a function of kvproof's own adapters."""

    def free(self, seq: int) -> None:
        HELPER["helped"](Lazy().forget, seq)


def test_a_function_of_kvproofs_own_adapters_is_not_the_method_at_fault() -> None:
    config, operations = Config(1, 2), [*TWO_TOKENS, ("run", 1), ("free", 1)]
    found = run(Helped(), config, operations)
    place = method_called(Helped(), Counterexample(config, operations, found)).method
    assert place is not None
    assert place.function == "Lazy.forget"


class Asked:
    """A manager that a question changes."""

    is_changed = False

    def can_allocate(self) -> Admission:
        self.is_changed = True
        return Admission.OK


class LosesWhenAsked(BuiltIn):
    """Counts a block less once it was asked."""

    def open(self, config: Config) -> None:
        super().open(config)
        self.asked = Asked()

    def can_admit(self, group: int) -> Admission:
        return self.asked.can_allocate()

    def observe(self) -> Observation:
        seen = super().observe()
        return seen._replace(free=(seen.free[0] - self.asked.is_changed, seen.free[1]))


def test_the_question_is_at_fault_that_changes_something() -> None:
    config, operations = Config(1, 2), TWO_TOKENS
    found = run(LosesWhenAsked(), config, operations)
    place = method_called(LosesWhenAsked(), Counterexample(config, operations, found)).method
    assert found.property == "failed-call-changes-nothing"
    assert place is not None
    assert place.function == "Asked.can_allocate"


class Hangs(BuiltIn):
    """As a subject in a process of its own: after a call that gave no answer there is no process to ask."""

    has_ended = False

    def admit(self, group: int, num_tokens: int) -> Any:
        self.has_ended = True
        raise Finding("total-calls", "admit(1) gave no answer within 3 s", "admit hang")

    def observe(self) -> Observation:
        if self.has_ended:
            raise AssertionError("observe() was called after the process of the subject had ended")
        return super().observe()


def test_nothing_is_observed_after_an_admission_that_did_not_return() -> None:
    assert run(Hangs(), Config(1, 2), TWO_TOKENS).kind == ("total-calls", "admit hang")


class Short(BuiltIn):
    """Gives a slot to the token, and none beyond it."""

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        return Reserved(self.manager.append_slots(self.seqs[seq], 0))


def test_lookahead_slots_that_were_promised_and_not_given_are_refuted() -> None:
    operations: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 1), ("sample", 1, (0,))]
    found = run(Short(), Config(block_size=2, lookahead=3), [*operations, ("append", 1)])
    assert (found.property, found.text) == ("admission-sound", "reserve(1, 1): 2 slots for 2 tokens and 3 beyond")


class RoundingDown(BuiltIn):
    """Gives no block to the last token of a prompt that fills its other blocks."""

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        (member,) = self.fakes[group].members
        member.tokens = member.tokens[:-1]
        return super().admit(group, num_tokens)


def test_a_prompt_without_slots_for_all_its_tokens_is_refuted() -> None:
    found = run(RoundingDown(), Config(block_size=2), [("new", 1, (1,), (0,) * 3), ("admit", 1, 3)])
    assert (found.property, found.text) == ("admission-sound", "admit(1): 2 slots for 3 tokens and 0 beyond")


class Refusing(BuiltIn):
    """Is not asked, and refuses every prompt."""

    capabilities = BuiltIn.capabilities.__class__(has_admission_query=False)

    def admit(self, group: int, num_tokens: int) -> Any:
        return Refused("no")


@pytest.mark.parametrize(("num_tokens", "is_wrong"), [(4, True), (40, False)])
def test_an_idle_pool_may_refuse_only_what_never_fits(num_tokens: int, is_wrong: bool) -> None:
    judge = ManagerJudge(Refusing(), Config(block_size=4, num_gpu_blocks=4))
    judge.apply(("new", 1, (1,), (0,) * num_tokens))
    if is_wrong:
        with pytest.raises(Finding, match="it would wait for ever"):
            judge.apply(("admit", 1, num_tokens))
    else:
        assert judge.apply(("admit", 1, num_tokens))


class Hanging(BuiltIn):
    """Never answers, and catches what it can."""

    def can_admit(self, group: int) -> Admission:
        while True:
            try:
                time.sleep(0.01)
            except Exception:  # what a subject may well do
                continue


def test_a_subject_that_catches_everything_and_never_answers_is_stopped() -> None:
    judge = ManagerJudge(Hanging(), Config())
    judge.apply(("new", 1, (1,), (0,)))
    with pytest.raises(Finding, match="no answer within") as refuted, time_limit(0.2):
        judge.apply(("admit", 1, 1))
    assert refuted.value.kind == ("total-calls", "hang")


class Unobservable(BuiltIn):
    """Raises when it is looked at."""

    is_broken = False

    def observe(self) -> Observation:
        if self.is_broken:
            raise RuntimeError(f"gone, like {object()}")
        return super().observe()


def test_an_observation_that_raises_is_a_finding_and_its_text_repeats() -> None:
    subject = Unobservable()
    judge = ManagerJudge(subject, Config())
    judge.apply(("new", 1, (1,), (0,)))
    subject.is_broken = True
    with pytest.raises(Finding) as refuted:
        judge.apply(("admit", 1, 1))
    assert refuted.value.text == "observe() raised RuntimeError: gone, like <object object>"


def test_a_fault_of_the_adapter_is_not_put_down_to_the_manager() -> None:
    class Misfit(BuiltIn):
        def can_admit(self, group: int) -> Any:
            raise AdapterError("this adapter knows its own limits")

    judge = ManagerJudge(Misfit(), Config())
    judge.apply(("new", 1, (1,), (0,)))
    with pytest.raises(AdapterError, match="its own limits"):
        judge.apply(("admit", 1, 1))


def test_a_subject_that_ends_the_process_is_refuted() -> None:
    class Leaving(BuiltIn):
        def can_admit(self, group: int) -> Admission:
            raise SystemExit(0)

    judge = ManagerJudge(Leaving(), Config())
    judge.apply(("new", 1, (1,), (0,)))
    with pytest.raises(Finding, match="raised SystemExit: 0"):
        judge.apply(("admit", 1, 1))


def test_a_subject_that_ends_the_process_when_it_is_opened_is_refuted() -> None:
    class Leaving(BuiltIn):
        def open(self, config: Config) -> None:
            raise SystemExit(0)

    with pytest.raises(Finding, match="raised SystemExit: 0"):
        ManagerJudge(Leaving(), Config())


class LeavingOut(BuiltIn):
    """Reports the hit of an admission without the last block of a prompt, and a look-up with `num_more` tokens more."""

    capabilities = replace(BuiltIn.capabilities, hits_whole_prompts=False)
    num_more = 0

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        admitted = super().admit(group, num_tokens)
        last_block = (len(self.fakes[group].members[0].tokens) - 1) // self.config.block_size
        hit = min(admitted.hit, last_block * self.config.block_size) if isinstance(admitted, Admitted) else 0
        return Admitted(hit)

    def hits(self, group: int) -> int:
        return super().hits(group) + self.num_more


HIT: list[Operation] = [
    *(("new", 1, (1,), (0,) * 6), ("admit", 1, 6), ("run", 1)),
    *(("new", 2, (2,), (0,) * 4), ("admit", 2, 1), ("run", 1), ("lookup", 2)),
]


def test_a_look_up_may_find_the_last_block_of_a_prompt_that_an_admission_leaves_out() -> None:
    subject = LeavingOut()
    judge = ManagerJudge(subject, Config(block_size=2, num_gpu_blocks=8, caching=True, chunked=True))
    for operation in HIT:
        assert judge.apply(operation)
    assert (judge.seqs[2].hit, judge.answer) == (2, "hit 4")
    subject.num_more = -4
    with pytest.raises(
        Finding, match="sequence 2 was admitted with a hit of 2 tokens, and a look-up says 0"
    ) as refuted:
        judge.apply(HIT[-1])
    assert refuted.value.property == "hit-found"


def test_the_sequences_of_a_new_group_may_share_lookahead_slots_until_they_decode() -> None:
    operations: list[Operation] = [("new", 1, (1, 2, 3), (0,)), ("admit", 1, 1), ("run", 0)]
    assert finding_of(BuiltIn(), Config(block_size=2, num_gpu_blocks=1, lookahead=1, group_size=3), operations) is None


@pytest.mark.parametrize("num_tokens", [3, 4])
def test_a_hit_of_a_whole_prompt_is_found_unless_the_manager_declares_that_it_finds_whole_prompts(
    num_tokens: int,
) -> None:
    class FindsWholePrompts(BuiltIn):
        capabilities = replace(BuiltIn.capabilities, hits_whole_prompts=False)

    config = Config(block_size=2, num_gpu_blocks=8, caching=True)
    operations: list[Operation] = [
        *(("new", 1, (1,), (0,) * 4), ("admit", 1, 1), ("run", 1)),
        *(("new", 2, (2,), (0,) * num_tokens), ("admit", 2, 1)),
    ]

    finding = finding_of(FindsWholePrompts(), config, operations)

    is_found = finding is not None and finding.property == "token-left"
    assert is_found is (num_tokens == 4)
    assert finding is None or "a hit leaves none of the 4 tokens of sequence 2 to compute" in finding.text
    assert finding_of(BuiltIn(), config, operations) is None


# Refusals that forget the hit -----------------------------------------------------------------------------------------

USED: list[Operation] = [("new", 1, (1,), (0,) * 3), ("admit", 1, 1), ("run", 1)]
AGAIN: list[Operation] = [("new", 2, (2,), (0,) * 3), ("admit", 2, 1)]
OTHERS: list[Operation] = [("free", 1), ("new", 3, (3,), (7,) * 3), ("admit", 3, 1), ("run", 1)]


@pytest.mark.parametrize(
    ("can", "operations", "is_refuted"),
    [
        ({"counts_hit_blocks": False}, [*USED, *AGAIN], True),
        ({"counts_hit_blocks": True}, [*USED, *AGAIN], False),
        ({"counts_hit_blocks": False, "lost_hits": 1}, [*USED, *AGAIN], False),
        ({"counts_hit_blocks": False, "lost_hits": None}, [*USED, *AGAIN], False),
        ({"counts_hit_blocks": False}, [*USED, *OTHERS, *AGAIN], False),  # nobody holds the block that is hit
    ],
    ids=["forgotten", "declared", "one may be missed", "any may be missed", "evictable"],
)
def test_a_refusal_counts_no_block_that_is_hit_and_in_use(
    can: dict[str, Any], operations: list[Operation], is_refuted: bool
) -> None:
    subject = BuiltIn()  # like vLLM's first generations it counts all blocks of a prompt
    subject.capabilities = replace(BuiltIn.capabilities, **can)
    finding = finding_of(subject, Config(block_size=2, num_gpu_blocks=3, caching=True), operations)

    assert (finding is not None) is is_refuted
    assert finding is None or (finding.property, finding.text) == (
        "admission-exact",
        "can_admit(2) says no, but takes at most 1 blocks, and 1 are free",
    )
