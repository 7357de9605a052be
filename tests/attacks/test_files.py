"""Broken files: each is accepted or refused with one message, in little time and memory, and runs nothing."""

import io
import json
import resource
import sqlite3
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis
import msgspec
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from rich.console import Console
from tests.attacks.damage import as_json, damaged, database, decoded, drawn, lines, toml, torn

from kvproof.audit.cli.fault_store import FaultStore
from kvproof.check.counterexample.replay import ReplayStatus
from kvproof.check.hunting import store as campaigns
from kvproof.check.hunting.plan import read_plan
from kvproof.check.hunting.resume import PLAN, HuntPlan, resumed
from kvproof.check.isolation.messages import pack
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.proving import run
from kvproof.check.proving.options import read_baseline as read_efforts
from kvproof.check.recording.example_run import record_run
from kvproof.check.recording.format import ENDED, SCHEMA_VERSION, VLLM_OFFLOAD, Header, RecordedCall
from kvproof.check.recording.validate import validate
from kvproof.check.runs import history
from kvproof.check.runs.configuration import Configuration, read_configuration
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.known_findings import known_findings
from kvproof.check.runs.replay import Trust, replay
from kvproof.check.runs.store import RESULT, Store, StoreError
from kvproof.check.search.result import SearchResult
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.models.certificates.folder import INDEX, CertificateError, Index, read_index
from kvproof.models.solvers.answer_cache import TABLES, AnswerCache
from kvproof.models.solvers.solver_effort import Efforts
from kvproof.models.solvers.solving import Answer, Settings
from kvproof.reports import device_baseline
from kvproof.reports.baseline import BaselineComparison, findings, read_baseline
from kvproof.reports.baseline import compare as compared
from kvproof.reports.data_plane_result import Bandwidth, DataPlane, Speed, Spread
from kvproof.reports.document import DocumentError, encode, read
from kvproof.reports.history import histories
from kvproof.reports.history_page import as_data, history_lines, history_page
from kvproof.reports.hosts import compare_hosts, hosts_page
from kvproof.reports.result import Check, Result, Run, WitnessCount
from kvproof.reports.terminal import print_report
from kvproof.spec.trace import Trace
from kvproof.spec.verdict import Verdict

TRACES = Path(__file__).parents[2] / "examples" / "traces"
REFUSED = (DocumentError, UsageError, StoreError, UnknownSubject, CertificateError)
QUESTION = ("hypotheses", "goal")
SECONDS_MAX, MEGABYTES_MAX = 2.0, 100
NUM_CASES, NUM_CASES_LONG = 134, 13_400


STORE_LINES = [
    Header(SCHEMA_VERSION, VLLM_OFFLOAD, "Manager", 1, 2, (2, 0), True),
    RecordedCall(1, "prepare_store", (1, 0), keys=[1], taken=[1], slots=[0], answer=True),
    RecordedCall(2, "complete_store", (1, 0), keys=[1], answer=True),
    RecordedCall(3, "prepare_load", (1, 0), keys=[1], slots=[0]),
    RecordedCall(4, "prepare_store", (0, 0), keys=[1, 2], taken=[2], slots=[1], answer=True),
    RecordedCall(5, "complete_store", (1, 0), keys=[2], answer=False),
    RecordedCall(6, "lookup", (1, 0), keys=[1, 2], found=["hit", "miss"]),
    RecordedCall(7, ENDED),
]


def result_of_a_run() -> Result:
    """A small result with a finding, whose trace lies beside it."""
    checks = [
        Check("walker/refcount-exact", "walker", "refcount-exact", Verdict.REFUTED, 1.0, {"operations": 3}, "it broke"),
        Check("explorer/no-leak/swap", "explorer", "no-leak", Verdict.EXHAUSTED, 0.5, {"states": 9}),
    ]
    checks[0].trace, checks[0].signature = "crashes/a.json", "fork: refcount"
    run = Run("0.1.0", "hunt", "kvproof", 1, {"python": "CPython"}, "2026-01-01T00:00:00Z", 1.5, is_complete=True)
    result = Result(run, checks, [WitnessCount("fork", "walker", 3)], messages=["a message"])
    result.count_totals()
    return result


def result_of_a_device() -> Result:
    """A result of `kvproof device` with speeds."""
    speed = Speed("engine", "swap in", "to the GPU", 8, 64, 128, Spread(4, 4, 4), Spread(0.5, 0.5, 0.5), 0.0)
    plane = DataPlane(
        "cuda", bandwidth=Bandwidth("cuda", "H100", "nhd", "int8", 64, 30, [speed], [speed], [], [], 1.0, 0.01)
    )
    return replace(result_of_a_run(), data_plane=plane)


def report_of(path: Path) -> None:
    """What `kvproof report` does with the folder of this result."""
    report(path.parent)


def report(folder: Path) -> None:
    """What `kvproof report` does."""
    result = read(folder / RESULT, Result)
    Store(folder).write_reports(result)
    Store(folder).write_device_page(result)
    print_report(result, folder, Console(file=io.StringIO()))


def compare(path: Path) -> None:
    """What a run does with its baseline."""
    before = read_baseline(path)
    findings(before)
    BaselineComparison(str(path), before)(result_of_a_run())


def read_trace(path: Path) -> None:
    """What `kvproof replay` does, on a subject that runs in this process."""
    done = replay(path, isolation=False, trusted=Trust())
    assert "a fault of kvproof" not in done.text, done.text
    if done.status is ReplayStatus.ERROR:
        raise UsageError(done.text)


def read_history(path: Path) -> None:
    """What `kvproof history` does, with a page and with JSON."""
    found = histories(history.recorded_runs(path))
    history_page(found)
    json.dumps(as_data(found, 20))
    list(history_lines(found, 20))


def read_campaign(path: Path) -> None:
    """What a campaign does with the results that it had before."""
    store = campaigns.ResultStore.of_campaign(path.parent)
    try:
        store.result_of("a", SearchResult)
    finally:
        store.close()


def read_hunt(path: Path) -> None:
    """What `kvproof hunt --resume` does with the plan and the results of a hunt."""
    store, _ = resumed(path.parent, HuntPlan)
    try:
        store.result_of("a", SearchResult)
    finally:
        store.close()


def compare_results(path: Path) -> None:
    """What `kvproof compare` does."""
    before = read_baseline(path)
    compared(str(path), before, result_of_a_run())


def compare_devices(path: Path) -> None:
    """What `kvproof device compare` does."""
    result = read(path, Result)
    hosts_page(compare_hosts([("a.json", result), ("b.json", result)]))


def read_answers(path: Path) -> None:
    """What `kvproof prove` does with the answers of earlier runs."""
    try:
        cache = AnswerCache(path, "z3", Settings())
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        raise UsageError(str(error)) from None
    with closing(cache), patch.object(run, "digest_of_files", return_value="files"):
        cache.get(QUESTION)
        run.kept(cache, ())


def rows_of(path: Path) -> dict[str, Any]:
    """The rows of every table of a database, and which change of its schema is made: none."""
    with closing(sqlite3.connect(path)) as made:
        made.row_factory = sqlite3.Row
        names = [one[0] for one in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [dict(row) for row in made.execute(f"SELECT * FROM {name}")] for name in names} | {"change": [0]}


def read_settings(path: Path) -> None:
    """What every command does with the configuration."""
    assert read_configuration(path).options is not None


class Kind:
    """One kind of file: right documents, its schema, how it is written, its name, and what reads it."""

    def __init__(
        self,
        documents: list[Any],
        schemas: tuple[type, ...],
        write: Callable[[Any], bytes],
        name: str,
        read: Callable[[Path], object],
        beside: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        self.name, self.read, self.beside = name, read, beside
        changed = [damaged(documents).map(write)] * 3 if documents else []
        self.files = torn(st.one_of(*changed, *map(drawn, schemas)))


def row_of_store(key: str, value: object) -> dict[str, object]:
    return {"key": key, "worker": "w", "seconds": 1.0, "result": f"hex:{msgspec.msgpack.encode(value).hex()}"}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    traces = [decoded(path.read_bytes()) | {"subject": subject} for path, subject in SAMPLES]
    result = encode(result_of_a_run())
    folder = tmp_path_factory.mktemp("files")
    path = folder / "r.jsonl"
    record_run(BuiltIn, 3, 30, path, {"num_gpu_blocks": 6})
    recording = [decoded(line) for line in path.read_bytes().splitlines()]
    hunt = HuntPlan("kvproof", 1, "quick", [], {"caching": False}, ["no-leak"])
    settings = {
        "subject": "kvproof", "effort": "quick", "budget": 3.5, "seed": 7, "out": "out", "judges": ["walker"],
        "trusted_subjects": ["a.py:*"], "fix": {"caching": False, "window": 3},
        "known": [{"property": "no-leak", "reason": "r", "expires": "2027-01-31", "signature": "fork: *"}],
    }  # fmt: skip
    stored = {"fault": "rules/a", "digest": "ab", "by": "prover", "evidence": "e", "seconds": 1.5}
    efforts = {"solver": "z3", "seed": 1, "hard": {"a": 3}, "subjects": {"b/c": 4}}
    plan = {
        "out": "out", "limits": {"units": 3, "seconds": 9.5},
        "search": [{"subjects": ["kvproof"], "releases": ["1", "2"], "fix": [{"caching": True}], "seeds": [1, 2]}],
    }  # fmt: skip
    history.record(folder / "h.sqlite", result_of_a_run(), 1)
    walk = SearchResult(Counterexample(Config(), [("free", 1)], Finding("no-leak", "x")), num_operations=3)
    unit = row_of_store("a", pack(walk))
    migrations = [statement for statements in history.MIGRATIONS for statement in statements]
    histories_of = partial(
        database, statements=migrations, application_id=history.APPLICATION_ID, version=len(history.MIGRATIONS)
    )
    campaigns_of = partial(database, statements=[campaigns.TABLE], application_id=campaigns.APPLICATION_ID, version=0)
    cache = AnswerCache(folder / "a.sqlite", "z3", Settings())
    cache.add(QUESTION, Answer(Verdict.PROVED, 0.5, 700))
    with patch.object(run, "digest_of_files", return_value="files"):
        run.keep(cache, (), [(None, Check("lint/x", "lint", "x", Verdict.PROVED))])
    cache.close()
    answers_of = partial(database, statements=TABLES, application_id=0, version=0)
    of_store = [msgspec.to_builtins(line) for line in STORE_LINES]
    crash = (("crashes/a.json", TRACES.joinpath(SAMPLES[0][0]).read_bytes()),)
    return {
        "trace": Kind(traces, (Trace,), as_json, "t.json", read_trace),
        "result": Kind([decoded(result)], (Result,), as_json, RESULT, lambda path: report(path.parent), crash),
        "baseline": Kind([decoded(result)], (Result,), as_json, "b.json", compare),
        "speeds": Kind([decoded(result)], (Result,), as_json, "b.json", device_baseline.read_baseline),
        "hunt": Kind(
            [{"results": [row_of_store(PLAN, msgspec.to_builtins(hunt)), unit], "change": [0, 1]}],
            (),
            campaigns_of,
            campaigns.HUNT,
            read_hunt,
        ),
        "recording": Kind([recording], (Header, RecordedCall), lines, "r.jsonl", validate),
        "configuration": Kind([settings], (Configuration,), toml, "kvproof.toml", read_settings),
        "known": Kind([settings], (), toml, "known.toml", known_findings),
        "faults": Kind(
            [{"results": [row_of_store("ab", stored)], "change": [0]}],
            (),
            campaigns_of,
            "f.sqlite",
            lambda path: FaultStore.opened(path, {}, is_resumed=True),
        ),
        "efforts": Kind([efforts], (Efforts,), as_json, "e.json", lambda path: read_efforts(path, 1)),
        "history": Kind([rows_of(folder / "h.sqlite")], (), histories_of, "h.sqlite", read_history),
        "campaign": Kind([plan], (), toml, "campaign.toml", read_plan),
        "results of a campaign": Kind(
            [{"results": [unit], "change": [0]}], (), campaigns_of, campaigns.CAMPAIGN, read_campaign
        ),
        "recording of a store": Kind([of_store], (), lines, "r.jsonl", validate),
        "devices": Kind([decoded(encode(result_of_a_device()))], (Result,), as_json, "d.json", compare_devices),
        "answers": Kind([rows_of(folder / "a.sqlite")], (), answers_of, "a.sqlite", read_answers),
        "compared": Kind([decoded(result)], (Result,), as_json, "b.json", compare_results),
        "certificates": Kind([], (Index,), as_json, INDEX, lambda path: read_index(path.parent)),
    }


SAMPLES = [
    (TRACES / "f1-fork-counts-every-mention-in-a-window.json", "kvproof"),
    (TRACES / "v0-swap-shared-block-twice.json", "kvproof"),
    (TRACES / "f15-a-long-prompt-is-overtaken.json", "kvproof-scheduler"),
    (TRACES / "offload-arc-refuses-although-it-could-evict.json", "kvproof-store"),
]
NAMES = (
    *("trace", "result", "baseline", "speeds", "hunt", "recording"),
    *("configuration", "known", "faults", "efforts", "certificates"),
    *("history", "campaign", "results of a campaign", "compared"),
    *("recording of a store", "devices", "answers"),
)


def peak_kilobytes() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def attack(kind: Kind, folder: Path, num_cases: int, derandomize: bool) -> tuple[int, int]:
    """Read so many files. Returns how many were accepted and refused."""
    counts, path = [0, 0], folder / kind.name
    for name, data in kind.beside:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    @hypothesis.settings(
        max_examples=num_cases,
        derandomize=derandomize,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(kind.files)
    def one(data: bytes) -> None:
        path.write_bytes(data)
        began, before, message = time.process_time(), peak_kilobytes(), "accepted"
        try:
            kind.read(path)
            counts[0] += 1
        except REFUSED as error:
            message = str(error)
            counts[1] += 1
        assert message.strip()
        assert time.process_time() - began < SECONDS_MAX
        assert (peak_kilobytes() - before) / 1024 < MEGABYTES_MAX

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a font that lacks a character
        one()
    return counts[0], counts[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_file_gives_one_message(kinds: dict[str, Kind], name: str, tmp_path: Path) -> None:
    accepted, refused = attack(kinds[name], tmp_path, NUM_CASES, derandomize=True)
    assert refused > 10
    assert accepted + refused >= NUM_CASES


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_broken_files_by_the_thousand_give_one_message(kinds: dict[str, Kind], name: str, tmp_path: Path) -> None:
    attack(kinds[name], tmp_path, NUM_CASES_LONG, derandomize=False)
