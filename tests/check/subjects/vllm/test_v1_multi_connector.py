"""vLLM's MultiConnector with two connectors of ours: which of them reports what, and what comes out."""

from typing import Any

import pytest

from kvproof.check.subjects.vllm.v1_connector import Connector
from kvproof.check.subjects.vllm.v1_multi_connector import Results, TwoConnectors


class Unites:
    """Sends are counted, and loads are not, as in vLLM."""

    _connectors: list[Any]
    _extra_async_saves: dict[str, int]

    def get_transfer_results(self, finished: set[str]) -> Results:
        results = Results()
        for connector in self._connectors:
            child = connector.get_transfer_results(finished)
            results.finished_recving |= child.finished_recving
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
    assert connectors.over([], ["7"]) == (set(), {"7"})
    assert reported[0].finished_recving == {"7"}
    connectors._worker = Connector  # what reports are made of is not taken
    with pytest.raises(AttributeError):
        connectors.over([], ["7"])
    assert connectors._reports[1].results.finished_recving == {"7"}


def test_a_send_is_over_when_both_connectors_have_reported_it() -> None:
    connectors = two()
    connectors.began({"7": 1})
    assert connectors.over(["7"], []) == ({"7"}, set())
    assert connectors.over([], []) == (set(), set())


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
    assert connectors.over([], ["7"]) == (set(), {"7"})
    assert connectors.over([], []) == (set(), set())
