"""The key of a request of SGLang is made by the statements of the release."""

from pathlib import Path

import pytest

from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.sglang.request_key import REQUESTS, joining_of, keys_given
from kvproof.spec.text.identity import Key

SOURCE = """
class Other:
    def __init__(self, extra_key, lora_id):
        extra_key = lora_id

class Req:
    def __init__(self, extra_key=None, lora_id=None):
        self.needs = an_engine()
        JOINING
        self.extra_key = extra_key
"""
APPENDS = "if lora_id is not None:\n            extra_key = (extra_key or '') + lora_id"
SEPARATES = "extra_key = f'{extra_key}/{lora_id}'"


def release(folder: Path, joining: str) -> Path:
    file = folder / REQUESTS
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE.replace("JOINING", joining))
    return folder


@pytest.mark.parametrize(
    ("joining", "joined"), [(APPENDS, ("ab", "b", "a", None)), (SEPARATES, ("a/b", "None/b", "a/None", "None/None"))]
)
def test_the_statements_of_the_release_join_the_keys(
    tmp_path: Path, joining: str, joined: tuple[str | None, ...]
) -> None:
    join = joining_of(release(tmp_path, joining))
    assert (join("a", "b"), join(None, "b"), join("a", None), join(None, None)) == joined


def test_a_release_that_joins_them_elsewhere_is_not_driven(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"schedule_batch\.py: Req\.__init__ does not join extra_key and lora_id"):
        joining_of(release(tmp_path, "pass"))


def test_a_salt_is_a_callers_key_or_a_salt_of_the_cache_and_may_be_the_id_of_an_adapter() -> None:
    _, _, adapter = keys_given(Key("X", 31), True)
    assert keys_given(Key(salt="31"), False) == (adapter, None, None)
    assert {bool(keys_given(Key(salt=salt), True)[0]) for salt in ("X", "Y")} == {True, False}
    assert keys_given(Key(), True) == (None, None, None)
