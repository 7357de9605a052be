"""A finding is data: its text is made of its fields, and all of them reach another process.

What an older kvproof wrote of a finding is computed from its text, as that version did.
"""

from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.subject_calls import raised
from kvproof.check.protocol.finding import Finding, former_signature
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.registry import find

REFCOUNT = Finding(
    "refcount-exact",
    "refcount of block 1: the specification says $expected, the subject $observed",
    call="fork(1, 2)",
    expected=2,
    observed=1,
    blocks=[1],
    sequence="sequence 2",
    promise="can_admit(1)",
    rule="share",
    about="of a parent",
    raised_in="take of pool.py",
    values={"parent": "sequence 1"},
)
PLAIN = Finding("refcount-exact", REFCOUNT.sentence, call="fork(1, 2)", expected=2, observed=1)


def test_the_text_has_the_call_and_the_values_of_the_fields() -> None:
    assert REFCOUNT.text == "fork(1, 2): refcount of block 1: the specification says 2, the subject 1"


def test_the_key_has_no_numbers() -> None:
    assert PLAIN.key([("fork", 1, 2)]) == (
        "refcount-exact",
        "fork: refcount of block: the specification says the subject",
    )


def test_the_key_has_the_words_of_the_sentence_before_its_values_stand_in_it() -> None:
    sentence = "$sequence has $keys and block 3, the specification $expected; there is request 1 running"
    values = {"keys": "keys 1 and 2"}
    finding = Finding("frame-kept", sentence, expected={1: [[0]]}, sequence="sequence 2, encoder", values=values)
    text = "sequence 2, encoder has keys 1 and 2 and block 3, the specification {1: [[0]]}; there is request 1 running"
    assert (finding.text, finding.mechanism("admit")) == (text, "admit: has and block the specification")


def test_the_key_has_the_rule_that_was_refused_and_what_the_call_was_about() -> None:
    finding = Finding("pin-own", "it must be that the lease is in force", rule="commit", about="of a store")
    assert finding.mechanism("report") == "report: rule commit: it must be that the lease is in force, of a store"


def test_where_the_subject_raised_stands_for_what_it_said() -> None:
    texts = ("no room for 3 of [1, 2]", "no room for request-7")
    values = [{"asked": "reserve(1, 2)", "message": f"NoRoom: {text}"} for text in texts]
    one, other = (
        Finding("admission-sound", "$asked raised $message", "reserve NoRoom", raised_in="take of pool.py", values=each)
        for each in values
    )
    assert one.mechanism("append") == other.mechanism("append") == "reserve NoRoom: raised in take of pool.py"
    assert (one.text, other.text) == tuple(f"reserve(1, 2) raised NoRoom: {text}" for text in texts)


def test_words_of_the_subject_stand_for_a_place_that_is_not_known() -> None:
    error = raised("total-calls", "fork", "fork(1, {2: 3})", "KeyError: no such parent", KeyError())
    assert error.text == "fork(1, {2: 3}) raised KeyError: no such parent"
    assert error.mechanism("fork") == "fork KeyError: raised KeyError: no such parent"


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


def test_a_finding_that_an_older_campaign_kept_is_read() -> None:
    old = [8, "frame-kept", "$sequence is $observed", "", "run(0)", "sequence 1", "can_admit(1)", pack((None, 2, (3,)))]
    texts: dict[str, Any] = {"call": "run(0)", "sequence": "sequence 1", "promise": "can_admit(1)"}
    assert vars(unpack(old)) == vars(Finding("frame-kept", "$sequence is $observed", observed=2, blocks=[3], **texts))


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
    subject: Any = find("kvproof")()
    subject.capabilities = replace(subject.capabilities, double_free_errors=declared)
    judge = ManagerJudge(subject, Config())

    def free(seq: int) -> None:
        raise NoHolderError(message)

    subject.free = free
    with pytest.raises(Finding) as found:
        judge.call("total-calls", "free", 1)
    assert found.value.kind == (property, "free NoHolderError")


@pytest.mark.parametrize(
    ("sentence", "signature"),
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
def test_a_former_signature_has_words_of_the_text_and_no_tables(sentence: str, signature: str) -> None:
    assert former_signature(Finding("failed-call-changes-nothing", sentence), "admit") == signature


@pytest.mark.parametrize("number", [3, 17])
def test_a_former_signature_begins_after_the_call_and_has_no_numbers(number: int) -> None:
    sentence = "GPU: $observed blocks in tables, so 1 are free"
    finding = Finding("conservation", sentence, call=f"free({number})", observed=number)
    assert former_signature(finding, "free") == "free: GPU: blocks in tables so are free"


def test_a_former_signature_has_the_call_that_raised_and_the_question_before_it() -> None:
    cause, text = "reserve NoRoom", "reserve(2, 1) raised NoRoom"
    finding = Finding("admission-sound", text, cause, promise="can_swap_in(1)", raised_in="take of pool.py")
    assert former_signature(finding, "append") == "reserve NoRoom: reserve raised NoRoom after can_swap_in said OK"
