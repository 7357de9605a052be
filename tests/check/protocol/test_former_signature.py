"""What an older kvproof wrote of a finding is computed from its text, as that version did."""

import pytest

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.former_signature import former_signature


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
