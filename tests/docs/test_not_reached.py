"""The table of docs/engine-runs.md of what hunts of kvproof's own subjects do not reach."""

from docs.generate.not_reached import PAGE, with_table

from kvproof.check.subjects.registry import NAMED
from kvproof.spec.trace import is_ours


def test_the_table_is_replaced_and_the_rest_of_the_page_stays() -> None:
    page = "# Engines\n\n## What a hunt does not reach\n\nold\n\n## What ran\n"
    once = with_table(page, "| `kvproof` | nothing |\n")
    assert once.startswith("# Engines\n\n## What a hunt does not reach\n")
    assert once.endswith("| `kvproof` | nothing |\n\n## What ran\n")
    assert "old" not in once
    assert with_table(once, "| `kvproof` | nothing |\n") == once


def test_each_subject_of_kvproof_has_a_row() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = {name: f"| `{name}` | {{}}reached in " for name in NAMED if is_ours(name)}
    assert [name for name, row in rows.items() if row.format("not ") not in text and row.format("") not in text] == []
