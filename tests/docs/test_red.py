"""The page of what to do when a run is red has each property of the specification, and is made from its table."""

import re

from docs.generate.red import ADVICE, PAGE, page

from kvproof.spec.text.properties import MEANINGS


def test_each_property_has_its_causes_and_a_command() -> None:
    assert list(ADVICE) == list(MEANINGS)
    assert [id for id, advice in ADVICE.items() if not advice.causes or not advice.command.startswith("kvproof ")] == []


def test_the_page_that_is_committed_is_the_one_that_the_table_gives() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "write it with `python -m docs.generate.red`"
    assert re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE) == list(MEANINGS)
