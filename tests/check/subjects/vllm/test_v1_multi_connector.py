"""vLLM's MultiConnector with two connectors of ours: which of them reports what, and what comes out."""

from typing import Any

import pytest

from kvproof.check.protocol.scheduler import Load
from kvproof.check.subjects.vllm.v1_connector import Connector
from kvproof.check.subjects.vllm.v1_multi_connector import Results, TwoConnectors
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options


class Unites:
    """Sends are counted, and loads are not, as in vLLM."""

    _connectors: list[Any]
    _extra_async_saves: dict[str, int]

    def get_transfer_results(self, finished: set[str]) -> Results:
        results = Results()
        for connector in self._connectors:
            child = connector.get_transfer_results(finished)
            results.finished_recving |= child.finished_recving
            results.failed_recving |= child.failed_recving
            for name in child.finished_sending:
                if self._extra_async_saves.pop(name, 0) == 0:
                    results.finished_sending.add(name)
        return results


class UnitesAsBefore(Unites):
    """The call of older releases; nothing is None."""

    get_transfer_results = None  # type: ignore[assignment]

    def get_finished(self, finished: set[str]) -> tuple[set[str] | None, set[str] | None]:
        received = {name for connector in self._connectors for name in connector.get_finished(finished)[1]}
        return None, received or None


def two(kind: Any = Unites) -> TwoConnectors:
    first, second = (Connector(False, False, 1) for _ in range(2))
    first.num_elsewhere[7] = 3
    return TwoConnectors(kind, first, second)


def test_one_connector_after_the_other_reports_a_load() -> None:
    connectors = two()
    reported = [connectors._reports[number].results for number in (0, 1)]
    assert connectors.over([], ["7"]) == (set(), {"7"}, set())
    assert reported[0].finished_recving == {"7"}
    connectors._worker = Connector  # what reports are made of is not taken
    with pytest.raises(AttributeError):
        connectors.over([], ["7"])
    assert connectors._reports[1].results.finished_recving == {"7"}


def ended(connectors: TwoConnectors, name: str) -> None:
    """A request has ended that both connectors send."""
    for connector in connectors.connector._connectors:
        connector.sent = {int(name)}
        request = Options(request_id=name, status=Options(name="FINISHED_STOPPED"))
        assert connector.request_finished(request, [1]) == (True, None)


def test_a_send_is_over_when_the_second_connector_has_reported_it_too() -> None:
    connectors = two()
    ended(connectors, "7")
    assert connectors.began({"7": 1}) == []
    assert connectors.over([], []) == (set(), set(), set())
    assert connectors.over(["7"], []) == ({"7"}, set(), set())
    assert connectors.over([], []) == (set(), set(), set())


def test_the_first_report_ends_a_send_that_is_not_counted_twice() -> None:
    connectors = two()
    ended(connectors, "7")
    connectors.began({})
    assert connectors.over([], []) == ({"7"}, set(), set())


def test_that_a_load_failed_is_reported_by_the_second_connector() -> None:
    assert two().over([], [], ["7"]) == (set(), set(), {"7"})


def test_what_the_first_connector_has_loaded_once_is_loaded_by_the_second_one() -> None:
    connectors = two()
    first, second = connectors.connector._connectors
    request, blocks = Options(request_id="7", num_tokens=4), Options(get_block_ids=lambda: ([1, 2, 3],))
    assert (first.get_num_new_matched_tokens(request, 0), second.given_up) == ((3, True), None)
    first.update_state_after_alloc(request, blocks, 3)
    assert connectors.began(None) == [Load(7, 0, 3)]
    assert first.get_num_new_matched_tokens(request, 0) == (0, False)
    assert second.get_num_new_matched_tokens(request, 1) == (2, True)
    second.update_state_after_alloc(request, blocks, 2)
    assert connectors.began(None) == [Load(7, 1, 3)]


def test_both_connectors_have_the_same_kv() -> None:
    first, second = two().connector._connectors
    assert first.num_elsewhere is second.num_elsewhere
    assert first.num_elsewhere == {7: 3}
    assert second.blocks_of("7") == first.blocks_of("7")


def test_releases_without_results_are_asked_for_what_is_finished() -> None:
    class Asked(UnitesAsBefore):
        def __getattribute__(self, name: str) -> Any:
            if name == "get_transfer_results":
                raise AttributeError(name)
            return super().__getattribute__(name)

    connectors = two(Asked)
    assert connectors.over([], ["7"]) == (set(), {"7"}, set())
    assert connectors.over([], []) == (set(), set(), set())
