"""The pytest plugin, in test runs of its own: traces as tests, options for conformance, and no cost without use."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.counterexample.store import make_trace, save
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

pytest_plugins = ["pytester"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "forty_lines.py"
COUNTS, FORGETS = "            self.refcounts[block] += 1\n", "            pass\n"
RUN: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0), ("fork", 1, 2)]
HEAVY = ("torch", "z3", "hypothesis", "numpy", "jinja2", "kvproof.spec", "kvproof.check.counterexample.store")


@pytest.fixture
def manager(pytester: pytest.Pytester) -> Path:
    """A manager whose fork forgets its references."""
    path = pytester.path / "broken.py"
    path.write_text(EXAMPLE.read_text().replace(COUNTS, FORGETS))
    return path


@pytest.fixture
def trace(pytester: pytest.Pytester, manager: Path) -> Path:
    """The counterexample, in the folder `crashes`, without its regression test."""
    finding, config = Finding("refcount-exact", "fork(1, 2): refcount"), Config(block_size=1, num_gpu_blocks=2)
    found = Counterexample(config, RUN, finding)
    saved = make_trace("broken.py:Adapter", found, "walker", 7, make=find(f"{manager}:Adapter"))
    path = save(pytester.path / "crashes", saved)
    for test in path.parent.glob("test_*.py"):
        test.unlink()
    return path


@pytest.fixture
def trusted(pytester: pytest.Pytester) -> None:
    """The repository trusts its own manager."""
    (pytester.path / "kvproof.toml").write_text('trusted_subjects = ["broken.py:*"]\n')


def mend(manager: Path) -> None:
    manager.write_text(manager.read_text().replace(FORGETS, COUNTS))


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    return result.parseoutcomes()


@pytest.mark.usefixtures("trusted")
def test_a_trace_that_still_refutes_fails_with_its_steps(pytester: pytest.Pytester, trace: Path) -> None:
    result = pytester.runpytest_inprocess(str(trace))
    assert outcomes(result) == {"failed": 1}
    result.stdout.fnmatch_lines(
        [
            f"*kvproof replay {trace.name}*",
            "refcount-exact is still refuted",
            "*refcount of block *: the specification says 2, the subject 1",
            "*4  fork(sequence 1, into 2)*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


@pytest.mark.usefixtures("trusted")
def test_a_trace_that_is_mended_passes(pytester: pytest.Pytester, manager: Path, trace: Path) -> None:
    mend(manager)
    assert outcomes(pytester.runpytest_inprocess(str(trace))) == {"passed": 1}


def test_a_trace_may_be_replayed_on_another_subject(pytester: pytest.Pytester, trace: Path) -> None:
    result = pytester.runpytest_inprocess(str(trace), "--kvproof-subject", "kvproof")
    assert outcomes(result) == {"passed": 1}


@pytest.mark.usefixtures("trusted")
def test_a_trace_that_cannot_be_replayed_is_an_error_and_no_failure(
    pytester: pytest.Pytester, manager: Path, trace: Path
) -> None:
    manager.unlink()
    result = pytester.runpytest_inprocess(str(trace))
    assert (outcomes(result), result.ret) == ({"errors": 1}, pytest.ExitCode.TESTS_FAILED)
    result.stdout.fnmatch_lines(["*broken.py*"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.usefixtures("trusted")
def test_every_json_file_under_a_configured_folder_is_a_test(pytester: pytest.Pytester, trace: Path) -> None:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nkvproof_traces = ["crashes"]\n')
    deeper = trace.parent / "old"
    deeper.mkdir()
    (deeper / "torn.json").write_text(trace.read_text()[:100])
    result = pytester.runpytest_inprocess()
    assert outcomes(result) == {"failed": 1, "errors": 1}
    result.stdout.fnmatch_lines(["*torn.json is not JSON*"])


@pytest.mark.parametrize("arguments", [(), ("crashes",), ("--rootdir", "crashes")])
def test_a_trace_chooses_no_code(pytester: pytest.Pytester, trace: Path, arguments: tuple[str, ...]) -> None:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nkvproof_traces = ["crashes"]\n')
    (trace.parent / "kvproof.toml").write_text('trusted_subjects = ["*"]\n')  # written by the one who made the trace
    evil = json.loads(trace.read_text()) | {"subject": "pipe:touch ran"}
    trace.write_text(json.dumps(evil))
    result = pytester.runpytest_inprocess(*arguments)
    assert outcomes(result) == {"errors": 1}
    result.stdout.fnmatch_lines(["*type: pytest */crashes/*.json --kvproof-subject 'pipe:touch ran' *"])
    assert not (pytester.path / "ran").exists()


def test_the_name_of_a_subject_does_nothing_in_the_terminal(pytester: pytest.Pytester, trace: Path) -> None:
    trace.write_text(json.dumps(json.loads(trace.read_text()) | {"subject": "\x1b[31m.py:Adapter"}))
    text = pytester.runpytest_inprocess(str(trace), "--color=no").stdout.str()
    assert "\\x1b[31m.py:Adapter" in text
    assert "\x1b" not in text


def test_what_no_one_configured_or_named_is_left_alone(pytester: pytest.Pytester, trace: Path) -> None:
    pytester.makepyfile("def test_one(): pass")
    (pytester.path / "data.json").write_text("{}")
    assert outcomes(pytester.runpytest_inprocess()) == {"passed": 1}


@pytest.mark.parametrize("text", ["{}", "[1]", "no JSON", json.dumps({"operations": []})])
def test_a_json_file_of_someone_else_is_not_taken_for_a_trace(pytester: pytest.Pytester, text: str) -> None:
    (pytester.path / "data.json").write_text(text)
    assert pytester.runpytest_inprocess("data.json").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {}),
        (["--kvproof-budget", "2.5"], {"seconds": 2.5, "operations": 10**12}),
        (["--kvproof-seed", "7"], {"seed": 7}),
        (["--kvproof-seed", "0"], {"seed": 0}),
    ],
)
def test_the_options_of_conformance_come_from_the_command_line(
    pytester: pytest.Pytester, arguments: list[str], options: dict[str, Any]
) -> None:
    pytester.makepyfile(f"def test_them(kvproof_options): assert kvproof_options == {options!r}")
    assert outcomes(pytester.runpytest_inprocess(*arguments)) == {"passed": 1}


def test_the_options_are_those_of_run_conformance(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"""
        import sys
        sys.path.insert(0, {str(EXAMPLE.parent)!r})
        from forty_lines import Adapter
        from kvproof.check import run_conformance

        def test_the_manager_conforms(kvproof_options):
            run_conformance(Adapter, **kvproof_options, isolation=False)
        """
    )
    result = pytester.runpytest_inprocess("--kvproof-budget", "1", "--kvproof-seed", "3")
    assert outcomes(result) == {"passed": 1}


@pytest.mark.parametrize("option", ["--kvproof-budget=0", "--kvproof-budget=soon", "--kvproof-seed=-1"])
def test_an_option_that_makes_no_sense_is_a_usage_error(pytester: pytest.Pytester, option: str) -> None:
    assert pytester.runpytest_subprocess(option).ret == pytest.ExitCode.USAGE_ERROR


def test_who_does_not_use_the_plugin_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"""
        import sys

        def test_what_is_there():
            assert "kvproof.check.pytest_plugin" in sys.modules
            assert [name for name in {HEAVY!r} if name in sys.modules] == []
        """
    )
    assert outcomes(pytester.runpytest_subprocess()) == {"passed": 1}
