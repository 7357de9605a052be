"""What the judge of a running program counts, as metrics for Prometheus.

The figures are read when they are asked for. The client adds those of the judge's own process: memory and processor
time.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvproof.check.recording.watched_recording import WatchedRecording
from kvproof.spec.extras import require_extra

PREFIX = "kvproof_watch"


def serve_metrics(host: str, port: int, recordings: Mapping[Path, WatchedRecording]) -> str:
    """Answer Prometheus at this address; returns the URL. port: 0 takes a free one.

    Raises MissingExtra without `prometheus-client`, OSError if the address cannot be used.
    """
    require_extra("watch", "--metrics")
    from prometheus_client import REGISTRY, start_http_server

    REGISTRY.register(Figures(recordings))
    server, _ = start_http_server(port, host)
    return f"http://{host}:{server.server_port}/metrics"


class Figures:
    """The collector that the client asks."""

    def __init__(self, recordings: Mapping[Path, WatchedRecording]) -> None:
        self.recordings = recordings

    def collect(self) -> Iterator[Any]:
        """The families of metrics, each with one value for each recording."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        label = ["recording"]
        lines = CounterMetricFamily(f"{PREFIX}_lines", "Calls of the manager that were judged.", labels=label)
        lag = GaugeMetricFamily(f"{PREFIX}_lag_bytes", "Bytes of the recording that are not judged yet.", labels=label)
        seconds = GaugeMetricFamily(
            f"{PREFIX}_lag_seconds", "Upper bound of the age of the oldest line that is not judged.", labels=label
        )
        judged = GaugeMetricFamily(
            f"{PREFIX}_judging", "1 while lines are judged; 0 after a finding, or if they cannot be.", labels=label
        )
        findings = CounterMetricFamily(
            f"{PREFIX}_findings", "Lines that no rule explains.", labels=["recording", "property"]
        )
        blocks = GaugeMetricFamily(
            f"{PREFIX}_blocks", "Blocks by pool and state.", labels=["recording", "pool", "state"]
        )
        for one in list(self.recordings.values()):
            name, judging = [one.name], one.judging
            lines.add_metric(name, one.num_lines)
            lag.add_metric(name, one.lines.num_bytes_left() if one.is_judged else 0)
            seconds.add_metric(name, one.lag_seconds() if one.is_judged else 0.0)
            judged.add_metric(name, int(one.is_judged))
            if judging is None:
                continue
            if judging.done.finding is not None:
                findings.add_metric([*name, judging.done.finding.property], 1)
            if judging.judge is not None:
                for pool, state, number in judging.judge.num_blocks():
                    blocks.add_metric([*name, pool, state], number)
        yield from (lines, lag, seconds, judged, findings, blocks)
