"""What runs without the extras: light commands import none of their modules, and the others say what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.cli.app import app
from kvproof.check.cli.verify import _prover
from kvproof.check.oracle.level import MANAGER
from kvproof.check.runs.data_plane_stage import stages_left_out
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.registry import find
from kvproof.spec.extras import EXTRAS, reason_missing
from kvproof.spec.verdict import Exit, Verdict

OWN = f"{Path(__file__).parents[1] / 'examples' / 'forty_lines.py'}:Adapter"
COMMANDS = [
    ["hunt", "--subject", "kvproof", "--seed", "1", "--effort", "10"],
    ["verify", "--subject", OWN, "--no-isolation", "--judges", "walker", "--seed", "1", "--effort", "2000"],
]
MODULES = sorted({module for modules in EXTRAS.values() for module in modules} | {"crosshair", "sympy"})
LIGHT = f"""
import sys
from kvproof.check import Capabilities, ManagerAdapter, run_conformance
from kvproof.check import pytest_plugin
from kvproof.check.cli.app import app
from kvproof.check.recording import record
from kvproof.check.runs.data_plane_stage import EmittingManager, emitted_stages
from kvproof.check.hunting.explore_stage import specification_stage
from kvproof.check.hunting.hypothesis_stage import hypothesis_stage
for arguments in {COMMANDS!r}:
    try:
        app(arguments)
    except SystemExit as ended:
        print("ended:", ended.code, file=sys.stderr)
print("loaded:", [name for name in {MODULES!r} if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which no module of an extra is installed."""
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)


def test_judging_a_manager_imports_no_module_of_an_extra(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines() == ["ended: 4", "ended: 0", "loaded: []"]  # ten operations are few


@pytest.mark.usefixtures("light")
def test_a_judge_that_needs_an_extra_is_left_out_with_the_reason() -> None:
    reason = reason_missing("device", "the data plane")
    assert reason == (
        "the data plane needs numpy, torch, matplotlib, which are not installed: pip install 'kvproof[device]'"
    )
    stages = [_prover(MANAGER, share=1), *stages_left_out(reason, is_built_in=True)]
    checks = [check for stage in stages for check in stage.planned_checks]
    assert {check.judge for check in checks} == {"prover", "data plane"}
    assert {check.verdict for check in checks} == {Verdict.UNSUPPORTED}
    assert {check.text for check in checks} == {
        reason,
        "the prover needs z3, which is not installed: pip install 'kvproof[prove]'",
    }


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (["prove"], "kvproof prove needs z3, which is not installed: pip install 'kvproof[prove]'"),
        (["faults"], "kvproof faults --of spec needs z3, which is not installed: pip install 'kvproof[prove]'"),
        (["device"], reason := "the data plane needs numpy, torch, matplotlib, which are not installed: "),
        (["verify", "--device", "cpu"], reason),
    ],
    ids=["prove", "faults", "device", "verify --device"],
)
def test_a_command_that_needs_an_extra_says_so_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], needs: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        app(arguments)
    errors = capsys.readouterr().err
    assert ended.value.code == Exit.USAGE
    assert errors.startswith(f"kvproof: {needs}")
    assert errors.count("\n") == 1


@pytest.mark.usefixtures("light")
def test_an_engine_and_a_name_of_the_built_in_manager_say_what_they_need() -> None:
    with pytest.raises(UnknownSubject, match=r"^sglang needs torch, which is not installed: pip install 'kvproof\[de"):
        find("sglang")
    import kvproof.impl

    with pytest.raises(ImportError, match=r"^kvproof\.impl\.Decoder needs numpy, torch, matplotlib"):
        _ = kvproof.impl.Decoder
