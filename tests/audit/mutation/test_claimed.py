"""A statement counts as claimed if an obligation is open without it, not because it ran."""

import pytest

from kvproof.audit.mutation.claimed import Statement, num_statements, statements, table


@pytest.fixture(scope="module")
def ran() -> list[Statement]:
    return statements()


def test_the_statements_of_every_function_that_proofs_run_are_counted(ran: list[Statement]) -> None:
    by_suite = {suite: {one.function for one in ran if suite in one.suites} for suite in ("refinement", "concolic")}
    assert {"DeviceBlocks.release", "Table.fork", "Growth.append_within_block"} <= by_suite["refinement"]
    assert {"DeviceBlocks.take", "LRUEvictor.evict_many", "move"} <= by_suite["concolic"]
    assert "Growth.append" not in {one.function for one in ran}
    assert [one.line for one in ran if one.function == "DeviceBlocks.share"] == sorted(
        one.line for one in ran if one.function == "DeviceBlocks.share"
    )


def test_a_statement_is_claimed_only_if_a_proof_needs_it(ran: list[Statement]) -> None:
    first, second = (one for one in ran if one.function == "DeviceBlocks.share")
    (edit,) = first.left_out.plant
    assert (edit.new.count("pass\n"), first.claimed_by()) == (
        edit.old.count("pass\n") + 1,
        "refinement",
    )
    assert second.claimed_by() == "refinement"
    evicts = next(one for one in ran if one.function == "CachedBlocks._evict")
    assert evicts.claimed_by() == "", "it runs on a path that no state takes"


def test_the_table_counts_each_statement_once() -> None:
    found = {
        Statement("impl/a.py", "A.take", line, ("refinement", "concolic")): suite
        for line, suite in enumerate(["refinement", "concolic", "", ""])
    }
    *_, of_take, of_all, _ = table(found)
    assert (of_take, of_all) == ("| `A.take` | 4 | 1 | 1 | 2 |", "| all of these | 4 | 1 | 1 | 2 |")


def test_the_manager_has_more_statements_than_proofs_run(ran: list[Statement]) -> None:
    found = {one: "refinement" for one in ran if one.function == "DeviceBlocks.share"}
    assert list(table(found))[-1] == f"| all of the manager | {num_statements()} | 2 | 0 | {num_statements() - 2} |"
    assert num_statements(("device_blocks",)) == 7 + 1 + 1 + 1 + 1 + 5 + 4 + 2 + 4 + 2 + 3  # of each function
