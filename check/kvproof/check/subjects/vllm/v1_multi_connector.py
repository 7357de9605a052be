"""vLLM's own MultiConnector with two connectors of ours: the scheduler's side of it, and what its worker reports.

The second connector has what the first one has, but for what the first one has loaded once: then it has given that up,
and the second one loads. Both send. The first one has sent as soon as the step after the end of a request is complete,
the second one when the judge says so. A load that is reported again is reported by the other connector. The
MultiConnector chooses between them, and unites their reports.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kvproof.check.protocol.scheduler import Load
from kvproof.check.subjects.loading import EngineError, partial_import
from kvproof.check.subjects.vllm.v1_connector import Connector
from kvproof.check.subjects.vllm.v1_scheduler_loader import KV_CONNECTORS, SupportsHMA


@dataclass
class Results:
    """The transfers that a connector's worker reports to be over (`KVConnectorTransferResults`)."""

    finished_sending: set[str] = field(default_factory=set)
    finished_recving: set[str] = field(default_factory=set)
    failed_recving: set[str] = field(default_factory=set)


class Reports:
    """The worker's side of one connector."""

    def __init__(self) -> None:
        self.results = Results()

    def get_transfer_results(self, finished: set[str]) -> Results:
        """What is over since the last call."""
        results, self.results = self.results, Results()
        return results

    def get_finished(self, finished: set[str]) -> tuple[set[str], set[str]]:
        """The same, as releases up to 0.30 ask for it."""
        results = self.get_transfer_results(finished)
        return results.finished_sending, results.finished_recving


def import_multi_connector() -> Any | None:
    """The class in the release that `import_modules` has mounted; None if there is none that can be imported."""
    base: Any = partial_import.module_of("vllm", f"{KV_CONNECTORS}.base")
    base.KVConnectorTransferResults, base.SupportsHMA = Results, SupportsHMA
    try:
        kind = partial_import.module_of("vllm", f"{KV_CONNECTORS}.multi_connector").MultiConnector
    except EngineError:
        return None
    return kind if hasattr(kind, "_aggregate_request_finished") else None


class TwoConnectors:
    """A MultiConnector on the scheduler's side, and one on the worker's side."""

    def __init__(self, kind: Any, first: Connector, second: Connector) -> None:
        second.num_elsewhere, second.sent, second.blocks_of = first.num_elsewhere, first.sent, partial(_ask, first)
        second.blocks = first.blocks
        first.given_up = set()
        self._first, self._second = first, second
        self._reports = Reports(), Reports()
        self.connector, self._worker = _with(kind, first, second), _with(kind, *self._reports)
        self._num_reports: dict[str, int] = {}  # by request: of its loads
        self._begun: list[str] = []  # requests that the worker of the first connector is sending

    def began(self, saves: Mapping[str, int] | None) -> list[Load]:
        """A step has this for the worker: how many connectors more than one send the KV of each request. Its loads."""
        self._worker._extra_async_saves.update(saves or {})
        self._begun += self._first.taken_sends()
        self._second.taken_sends()
        return [load for connector in (self._first, self._second) for load in connector.taken_loads()]

    def over(
        self, sent: Iterable[str], received: Iterable[str], failed: Iterable[str] = ()
    ) -> tuple[set[str], set[str], set[str]]:
        """What the MultiConnector reports if these transfers are over: of a load, one connector after the other.

        failed: requests of which nothing could be loaded.
        """
        for name in received:
            number = self._num_reports[name] = self._num_reports.get(name, 0) + 1
            self._reports[1 - number % 2].results.finished_recving.add(name)
        self._reports[1].results.failed_recving.update(failed)
        self._reports[0].results.finished_sending.update(self._begun)
        self._reports[1].results.finished_sending.update(sent)
        self._begun = []
        if hasattr(self._worker, "get_transfer_results"):
            results = self._worker.get_transfer_results(set())
            return results.finished_sending, results.finished_recving, results.failed_recving
        sending, receiving = self._worker.get_finished(set())
        return sending or set(), receiving or set(), {*failed}


def _ask(first: Connector, name: str) -> Any:
    return first.blocks_of(name)


def _with(kind: Any, *connectors: Any) -> Any:
    """A MultiConnector with these connectors, which are not made from a configuration."""
    made = kind.__new__(kind)
    made._connectors, made._requests_to_connector, made._extra_async_saves = list(connectors), {}, {}
    made._all_support_hma, made._ktc_kv_transfer_config = True, []
    return made
