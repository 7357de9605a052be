"""A finding is data: its text is made of its fields, and all of them reach another process."""

import pytest

from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Capabilities, Config
from kvproof.check.subjects.registry import find

REFCOUNT = Finding(
    "refcount-exact",
    "refcount of block 1: the specification says $expected, the subject $observed",
    call="fork(1, 2)",
    expected=2,
    observed=1,
    blocks=[1],
)


def test_the_text_has_the_call_and_the_values_of_the_fields() -> None:
    assert REFCOUNT.text == "fork(1, 2): refcount of block 1: the specification says 2, the subject 1"


def test_the_key_has_no_numbers() -> None:
    assert REFCOUNT.key([("fork", 1, 2)]) == (
        "refcount-exact",
        "fork: refcount of block: the specification says the subject",
    )


@pytest.mark.parametrize(
    ("sentence", "mechanism"),
    [
        ("can_admit only asks, but tables went {} -> {1: [[0]]}", "admit: can_admit only asks but tables went >"),
        ("open({'block_size': 1}) raised ValueError: too small", "admit: too small"),
        ("the subject says: [[]]", "admit: the subject says:"),
        (
            "step_done([Scheduled(seq=1, num_tokens=2), Scheduled(seq=2, num_tokens=1)]) raised KeyError",
            "admit: step_done raised KeyError",
        ),
        (
            "9 steps, and not all is done; there is request 1 waiting, request 2 running",
            "admit: steps and not all is done",
        ),
        ("reported as Refused(), and is Admission(7)", "admit: reported as and is Admission"),
    ],
)
def test_the_key_has_words_of_the_sentence_and_no_tables(sentence: str, mechanism: str) -> None:
    assert Finding("failed-call-changes-nothing", sentence).mechanism("admit") == mechanism


@pytest.mark.parametrize(
    ("cause", "promise", "mechanism"),
    [
        ("reserve NoRoom", "can_swap_in(1)", "reserve NoRoom: reserve raised NoRoom after can_swap_in said OK"),
        ("reserve NoRoom", "can_append(1)", "reserve NoRoom: reserve raised NoRoom"),
        ("reserve NoRoom", "", "reserve NoRoom: reserve raised NoRoom"),
        ("admit NoRoom", "can_admit(1)", "admit NoRoom: reserve raised NoRoom"),
    ],
)
def test_a_call_that_fails_after_another_question_than_its_own_breaks_in_another_way(
    cause: str, promise: str, mechanism: str
) -> None:
    finding = Finding("admission-sound", "reserve(2, 1) raised NoRoom", cause, promise=promise)
    assert finding.mechanism("append") == mechanism
    plain = Finding("admission-sound", "reserve(2, 1) raised NoRoom", cause)
    assert (finding.kind == plain.kind) is ("can_swap_in" not in promise)


def test_every_field_reaches_another_process() -> None:
    arrived = unpack(pack(REFCOUNT))
    assert vars(arrived) == vars(REFCOUNT)


class NoHolderError(Exception):
    """What an engine raises when it frees what nobody holds."""


@pytest.mark.parametrize(
    ("declared", "message", "property"),
    [
        ((), "7", "total-calls"),
        ((), "7 is already free", "no-double-free"),
        (("NoHolderError",), "7", "no-double-free"),
    ],
)
def test_a_double_free_is_known_by_its_type_or_else_by_its_message(
    declared: tuple[str, ...], message: str, property: str
) -> None:
    subject = find("kvproof")()
    judge = ManagerJudge(subject, Config())

    def free(seq: int) -> None:
        raise NoHolderError(message)

    subject.free = free  # type: ignore[method-assign]
    judge.capabilities = Capabilities(double_free_errors=declared)
    with pytest.raises(Finding) as found:
        judge.call("total-calls", "free", 1)
    assert found.value.kind == (property, "free NoHolderError")
