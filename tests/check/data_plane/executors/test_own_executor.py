"""An executor of one's own runs in a process of its own; what it does to itself is a finding."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kvproof.check.data_plane.executors import named
from kvproof.check.data_plane.executors.base import own_function
from kvproof.check.data_plane.executors.isolation import Isolation, require_function
from kvproof.check.data_plane.mappings import scenario
from kvproof.check.data_plane.memory.layouts import Geometry, Layout, UnknownSetting
from kvproof.check.data_plane.run.harness import run_case
from kvproof.check.data_plane.run.results import CaseResult, CaseStatus, FindingKind
from kvproof.check.data_plane.speed.bandwidth import BandwidthConfig, run_bandwidth

CPU = torch.device("cpu")
# One process serves all cases, so one function does everything: the number of layers selects what it does.
SOURCE = """
import os
import sys
import time

RIGHT, EXCHANGED, ABSOLUTE, RAISES, PRINTS = 1, 2, 3, 4, 5

def move(caches, moves):
    print("this goes nowhere")
    what = caches.geometry.num_layers
    if what == RAISES:
        raise LookupError("no block")
    num_gpu, num_cpu = caches.geometry.num_gpu_blocks, caches.geometry.num_cpu_blocks
    for name, source_pool, target_pool, pairs in moves.lists():
        sources, targets = ((caches.gpu, caches.cpu)[pool] for pool in (source_pool, target_pool))
        for layer, (here, there) in enumerate(zip(sources, targets)):
            for source, target in pairs:
                if what == ABSOLUTE and name == "swap_in":
                    source = (source + num_gpu) % num_cpu
                block = here[source]
                there[target] = block.flip(0) if what == EXCHANGED and layer == 1 else block

def hang(caches, moves):
    time.sleep(600)

def crash(caches, moves):
    os.abort()

def leave(caches, moves):
    print("out of cheese", file=sys.stderr)
    os._exit(3)

number = 5
"""

HOSTILE = """
import os, time

def shrinks(caches, moves):
    for descriptor in range(3, 40):
        try:
            os.ftruncate(descriptor, 0)
        except (OSError, ValueError):
            pass
    raise PermissionError("every descriptor refuses")

def to_all(data):
    for descriptor in range(3, 40):
        try:
            os.write(descriptor, data)
        except OSError:
            pass

def answers(caches, moves):
    to_all(b'{"nope": 1}\\n')
    time.sleep(60)

def lies(caches, moves):
    to_all(b'{"seconds": "x"}\\n')
    time.sleep(60)

def floods(caches, moves):
    while True:
        to_all(bytes(1 << 16))
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("own") / "mover.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def isolation(module: str) -> Iterator[Isolation]:
    with Isolation(f"{module}:move", 20.0) as process:
        yield process


def case(name: str, layers: int, isolation: Isolation | None, seconds_max: float = 20.0) -> CaseResult:
    geometry = Geometry(Layout.NHD, "bfloat16", 4, 2, 16, layers, 12, 9)
    return run_case(
        named(name), geometry, scenario("mixed", 0, 12, 9, 4), CPU, isolation=isolation, step_seconds_max=seconds_max
    )


def test_a_right_function_passes(module: str, isolation: Isolation) -> None:
    result = case(f"{module}:move", 1, isolation)
    assert result.finding is None
    assert result.num_steps == 12


def test_a_function_that_exchanges_keys_and_values_gets_their_origin(module: str, isolation: Isolation) -> None:
    finding = case(f"{module}:move", 2, isolation).finding
    assert finding is not None
    assert set(finding.histogram) == {"moved"}
    first = finding.wrong[0]
    assert first.origin is not None
    assert (first.layer, first.part, first.origin.layer, first.origin.part) == (1, 0, 1, 1)


def test_a_function_that_counts_host_blocks_over_both_pools_gets_the_block_it_read(
    module: str, isolation: Isolation
) -> None:
    finding = case(f"{module}:move", 3, isolation).finding
    assert finding is not None
    first = finding.wrong[0]
    assert first.origin is not None
    assert first.origin.pool == first.expected.pool == 1
    num_rows = 4
    assert first.origin.row // num_rows == (first.expected.row // num_rows + 12) % 9


def test_a_function_that_raises_is_a_finding_and_its_process_goes_on(module: str, isolation: Isolation) -> None:
    finding = case(f"{module}:move", 4, isolation).finding
    assert finding is not None
    assert (finding.kind, finding.text) == (FindingKind.RAISED, "in step 1, the executor raised LookupError: no block")
    assert case(f"{module}:move", 1, isolation).finding is None


def test_a_copy_that_fails_and_says_so_to_nobody_is_found_by_what_was_not_moved() -> None:
    """The example of the documentation: ids beyond the pool, and the copy's error is dropped (vLLM 7577)."""
    example = Path(__file__).parents[4] / "examples" / "silent_mover.py"
    finding = case(f"{example}:move", 1, None).finding
    assert finding is not None
    assert finding.kind is FindingKind.WRONG_BYTES
    assert set(finding.histogram) == {"unmoved"}
    assert "still holds what it held before the step" in finding.text
    assert finding.wrong[0].origin is not None
    assert finding.wrong[0].origin.row != finding.wrong[0].expected.row


def test_where_there_is_no_room_for_shared_memory_that_is_reported(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(number: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with Isolation(f"{module}:move", 20.0) as process:
        result = case(f"{module}:move", 1, process)
    assert result.status is CaseStatus.SKIPPED
    assert result.reason == "there is no memory for pools of 0 MiB (No space left on device)"


def test_what_cannot_be_called_is_refused_with_a_message(module: str) -> None:
    with pytest.raises(UnknownSetting, match="has no 'mover'; did you mean move"):
        own_function(f"{module}:mover")
    with pytest.raises(UnknownSetting, match="number is not a function: it is of type int, not callable"):
        own_function(f"{module}:number")


@pytest.mark.long
def test_the_refusal_comes_from_the_other_process_too(module: str) -> None:
    with pytest.raises(UnknownSetting, match="has no 'mover'; did you mean move"):
        case(f"{module}:mover", 1, None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("engin", "no executor is named 'engin'; did you mean engine?"),
        (
            "xyz",
            "no executor is named 'xyz'; choose one of engine, block-copy, index-copy, vllm, sglang, "
            "kv-store, vllm-reference, sglang-reference, or module:function for your own function",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_what_there_is(name: str, message: str) -> None:
    with pytest.raises(UnknownSetting) as refused:
        named(name)
    assert str(refused.value) == message


@pytest.mark.long
def test_a_process_that_ends_itself_is_a_finding(module: str) -> None:
    with Isolation(f"{module}:leave", 20.0) as process:
        finding = case(f"{module}:leave", 1, process).finding
    assert finding is not None
    assert finding.kind is FindingKind.CRASHED
    assert finding.text == ("in step 1, the executor crashed: its process ended with exit code 3 after: out of cheese")


@pytest.mark.long
def test_a_process_that_is_killed_by_a_signal_says_which(module: str) -> None:
    finding = case(f"{module}:crash", 1, None).finding
    assert finding is not None
    assert finding.text == "in step 1, the executor crashed: its process was ended by signal 6 (SIGABRT)"


@pytest.mark.long
def test_what_an_executor_does_to_shared_memory_and_pipes_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "hostile.py"
    path.write_text(HOSTILE, encoding="utf-8")
    for way, text in (
        ("shrinks", "in step 1, the executor raised PermissionError: every descriptor refuses"),
        ("answers", "in step 1, the executor crashed: it wrote to the pipe of the answers (Object contains unknown"),
        ("lies", "in step 1, the executor crashed: it wrote to the pipe of the answers (Expected `float`, got `str`"),
        ("floods", "in step 1, the executor crashed: it wrote to the pipe of the answers (a line without an end)"),
    ):
        finding = case(f"{path}:{way}", 1, None).finding
        assert finding is not None
        assert finding.text.startswith(text)


@pytest.mark.long
def test_a_process_that_hangs_is_ended_and_the_next_case_begins_with_a_new_one(module: str) -> None:
    with Isolation(f"{module}:hang", 0.5) as process:
        for _ in range(2):
            finding = case(f"{module}:hang", 1, process).finding
            assert finding is not None
            assert (finding.kind, finding.text) == (
                FindingKind.HANG,
                "in step 1, the executor gave no answer within 0.5 s",
            )
            assert process._process is None


@pytest.mark.long
def test_a_module_name_is_found_from_the_working_folder(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(module))
    assert case("mover:move", 1, None).finding is None


def test_a_module_is_imported_elsewhere_when_it_is_asked_whether_it_has_the_function(
    module: str, tmp_path: Path
) -> None:
    require_function(f"{module}:move")
    with pytest.raises(UnknownSetting, match="has no 'mover'; did you mean move"):
        require_function(f"{module}:mover")
    ends = tmp_path / "ends.py"
    ends.write_text("import os, sys\nsys.exit = None\nos._exit(7)\n", encoding="utf-8")
    with pytest.raises(UnknownSetting, match="the process that imported it ended with exit code 7"):
        require_function(f"{ends}:move")


@pytest.mark.long
def test_an_import_that_does_not_end_is_ended(tmp_path: Path) -> None:
    sleeps = tmp_path / "sleeps.py"
    sleeps.write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    with pytest.raises(UnknownSetting, match="the import did not end within 3 s"):
        require_function(f"{sleeps}:move", 3.0)


TIMED = """
import os
import time

def sleep(caches, moves):
    for name, _, _, pairs in moves.lists():
        sources = caches.cpu_planes if name == "swap_in" else caches.gpu_planes
        targets = caches.cpu_planes if name == "swap_out" else caches.gpu_planes
        for source, target in pairs:
            for here, there in zip(sources, targets):
                there[target].copy_(here[source])
    with open(__file__ + ".pid", "w") as file:
        file.write(str(os.getpid()))

def raises_when_timed(caches, moves, calls=[]):
    sleep(caches, moves)
    calls.append(moves)
    if len(calls) > 20:
        raise LookupError("too often")
"""


@pytest.mark.long
def test_an_own_executor_is_timed_in_its_process_by_its_clock_beside_copies_in_the_memory_they_share(
    tmp_path: Path,
) -> None:
    module = tmp_path / "timed.py"
    module.write_text(TIMED, encoding="utf-8")
    config = BandwidthConfig((named(f"{module}:sleep"),), seconds=10.0, num_pairs=2, num_places=2)
    speeds = run_bandwidth(config)
    assert {(one.name, one.mapping.split(", ")[-1]) for one in speeds.moves} == {(f"{module}:sleep", "own process")}
    assert len(speeds.moves) == len(speeds.host_costs) == 6
    references = {one.mapping for one in speeds.references}
    assert {one.reference for one in speeds.moves} <= {name for name in references if name.endswith(", own process")}
    assert int(Path(f"{module}.pid").read_text()) != os.getpid()

    fails = run_bandwidth(BandwidthConfig((named(f"{module}:raises_when_timed"),), seconds=10.0, num_pairs=2))
    assert fails.moves == []
    assert any("LookupError: too often" in reason for reason in fails.skipped)
