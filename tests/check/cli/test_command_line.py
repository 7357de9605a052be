"""The `kvproof` command as its users call it: exit codes, messages, files."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.check.forgetful import FORGETFUL
from tests.golden_files import Command
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app, main
from kvproof.check.cli.config import options_to_repeat
from kvproof.check.cli.groups import GROUPS
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.oracle.coverage import OF_STORES
from kvproof.check.oracle.level import compile_rules
from kvproof.check.runs.session import StageBudget
from kvproof.check.runs.store import Store
from kvproof.check.search import manager_operations
from kvproof.check.subjects.registry import ROWS, find
from kvproof.reports.result import Check

# A fork that forgets to count its references. MEMORY keeps what a repeated run would meet.
FAULTY = f"""{FORGETFUL}
class Raising(Forgetful):
    def preempt(self, group):
        raise RuntimeError("no [bold]preemption[/] here")

class Moody(BuiltIn):
    num_opened = 0
    def observe(self):
        seen = super().observe()
        Moody.num_opened += 1
        return seen._replace(free=(seen.free[0] - 1, seen.free[1])) if Moody.num_opened == 50 else seen

class Wrong(BuiltIn):
    def reserve(self, seq, num_tokens):
        return [super().reserve(seq, num_tokens)]
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file with faulty subjects, in a working folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.py").write_text(FAULTY)
    compile_rules()  # once, and on no budget's time
    return "faulty.py"


def kvproof(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def stored(folder: str = ".kvproof") -> Any:
    return json.loads(Path(folder, "result.json").read_text())


def failures(document: Any) -> list[dict[str, Any]]:
    return [
        check for check in document["checks"] if check["verdict"] == "refuted" and check["property"] != "hit-complete"
    ]


def test_help_imports_no_judge() -> None:
    program = (
        "import sys; from kvproof.check.cli.app import app; app(['--help'], standalone_mode=False); "
        "heavy = 'hypothesis', 'msgspec', 'rich', 'kvproof.check.search.manager_operations'; "
        "print([name for name in sys.modules if name in heavy])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Exit codes: 0 ok, 1 refuted, 2 usage" in done.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"kvproof \d+\.\d+\.\d+\S*\n", kvproof("--version").output)


def test_the_subjects_are_listed() -> None:
    done = kvproof("subjects")
    assert done.exit_code == 0
    names = [*(row.name for row in ROWS), "module:factory", "pipe:COMMAND"]
    assert [line.split()[0] for line in done.output.splitlines()] == names


def test_an_empty_list_of_engines_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path))
    done = command("engines", "list")
    assert done.exit_code == 0


def test_a_scope_of_the_specification_is_exhausted(faulty: str, command: Command) -> None:
    done = command("explore", "--blocks", "2", "--seqs", "2", "--tokens", "2", "--out", "out", "--json", "deep/a.json")
    assert done.exit_code == 0
    document = stored("out")
    assert document == json.loads(Path("deep/a.json").read_text())
    assert {check["verdict"] for check in document["checks"]} == {"exhausted"}
    assert document["checks"][0]["id"].endswith("/tables-4x3x6-blocks-2-seqs-2-tokens-2")
    assert document["run"]["options"] == ["--blocks", "2", "--seqs", "2", "--tokens", "2"]


def test_the_options_that_repeat_a_run_are_as_they_are_typed() -> None:
    command = typer.main.get_command(app)
    explore = command.get_command(None, "explore")  # type: ignore[attr-defined]
    context = explore.make_context("explore", ["--reader", "c", "--jobs", "2", "--blocks", "3"])
    assert options_to_repeat(context) == ["--blocks", "3", "--reader", "c"]


def test_a_store_has_scopes_of_its_own(faulty: str, command: Command) -> None:
    store = f"{Path(__file__).resolve().parents[3]}/examples/forty_line_store.py:Store"
    assert command("explore", "--subject", store, "--scope", "tables-4x3x6").exit_code == 2


def test_a_scope_of_a_subject_is_refuted_by_its_shortest_run(faulty: str, command: Command) -> None:
    assert (
        command(
            "explore", "--subject", f"{faulty}:Forgetful", "--blocks", "2", "--seqs", "2", "--tokens", "2"
        ).exit_code
        == 1
    )
    (found,) = failures(stored())
    assert found["property"] == "refcount-exact"
    trace = json.loads(Path(".kvproof", found["trace"]).read_text())
    assert [operation[0] for operation in trace["operations"]] == ["new", "admit", "run", "fork"]


def test_an_unfinished_search_is_inconclusive(faulty: str) -> None:
    assert kvproof("explore", "--scope", "tables-6x4x8", "--budget", "0.1").exit_code == 4


def test_a_hunt_shows_saves_and_replays_what_it_found(faulty: str, command: Command) -> None:
    options = ("--stop-at-first", "--seed", "5", "--budget", "60", "--json", "result.json")
    done = command("hunt", "--subject", f"{faulty}:Forgetful", *options)
    assert done.exit_code == 1
    (found,) = failures(json.loads(Path("result.json").read_text()))
    saved = Path(found["trace"])
    assert saved.parent == Path(".kvproof/crashes")
    start = done.output.splitlines().index(f"refcount-exact is refuted for {faulty}:Forgetful at step 4 (explorer).")
    assert start + 5 < 25  # one screen says what is wrong, where, and what to type

    assert command("replay", saved, "--trust").exit_code == 1
    page = saved.with_suffix(".html")
    assert "the subject: refcount 1" in page.read_text()
    assert command("replay", saved, "--subject", "kvproof", "--page").exit_code == 0
    assert "nothing is refuted." in page.read_text()
    assert command("replay", "faulty.py", saved, "--subject", "kvproof").exit_code == 2
    trace = json.loads(saved.read_text())
    saved.write_text(json.dumps(trace | {"operations": [["append", 1], *trace["operations"]]}))
    assert command("replay", saved, "--subject", "kvproof").exit_code == 4


def test_a_walk_that_keeps_going_repeats_from_its_seed(faulty: str) -> None:
    make = find(f"{faulty}:Raising")
    traces = []
    for folder, seed in (("a", 5), ("b", 5), ("c", 6)):
        saving = Saving(make, "Raising", seed, Store(Path(folder)))
        stage = walker_stage(make(), saving, 1.0, saving.walk(2_000), keeps_going=True)
        said = list(stage.run(StageBudget(seed, 1_000.0, lambda count: None)))
        at_once, found = (one for one in said if isinstance(one, Check) and one.id == "walker/refcount-exact/fork")
        assert at_once.trace == found.trace is not None
        traces.append(json.loads(Path(folder, found.trace).read_text())["num_operations_before"])
    assert traces[0] == traces[1] != traces[2]


def test_a_hunt_reports_one_of_each_kind(faulty: str, command: Command) -> None:
    assert (
        command("hunt", "--subject", f"{faulty}:Raising", "--seed", "1", "--effort", "1000", "--no-isolation").exit_code
        == 1
    )
    found = {check["id"]: check for check in failures(stored()) if check["judge"] == "walker"}
    assert {"walker/refcount-exact/fork", "walker/total-calls/preempt-RuntimeError"} <= found.keys()
    shortest = json.loads(Path(".kvproof", found["walker/refcount-exact/fork"]["trace"]).read_text())
    assert [operation[0] for operation in shortest["operations"]] == ["new", "admit", "run", "fork"]


def test_a_subject_that_does_not_repeat_is_refuted_as_nondeterministic(faulty: str) -> None:
    assert kvproof("hunt", "--subject", f"{faulty}:Moody", "--stop-at-first", "--budget", "5").exit_code == 1
    assert [check["property"] for check in failures(stored())] == ["nondeterministic"]


def test_an_adapter_that_breaks_the_protocol_is_named_and_no_manager_is_blamed(faulty: str, command: Command) -> None:
    assert command("hunt", "--subject", f"{faulty}:Wrong", "--seed", "1", "--budget", "5").exit_code == 2
    assert failures(stored()) == []


def test_a_gate_without_enough_time_does_not_pass(faulty: str) -> None:
    done = kvproof("verify", "--budget", "0.2", "--seed", "1")
    assert done.exit_code == 4
    document = stored()
    judges = {"prover", "specification", "explorer", "walker", "hypothesis", "data plane"}
    assert {check["judge"] for check in document["checks"]} == judges
    unsupported = {check["property"] for check in document["checks"] if check["verdict"] == "unsupported"}
    of_schedulers = {"in-flight-held", "budget-kept", "progress", "running-served", "tokens-delivered", "arrival-order"}
    of_schedulers |= {"preempted-as-set"}
    of_others = {"token-left", "events-agree"}  # kvproof's manager finds whole prompts, and reports no events
    assert unsupported == {*of_schedulers, *of_others, *OF_STORES, "nondeterministic"}


def test_the_document_alone_is_on_standard_output_when_it_is_wanted_there(faulty: str, command: Command) -> None:
    done = command("explore", "--blocks", "2", "--seqs", "1", "--tokens", "1", "--json", "-")
    assert json.loads(done.stdout) == stored()


def test_a_report_is_rendered_again_with_the_code_of_its_run(faulty: str, command: Command) -> None:
    sizes = ("--blocks", "2", "--seqs", "2", "--tokens", "2")
    first = kvproof("explore", "--subject", f"{faulty}:Forgetful", *sizes, "--out", "out")
    names = ("junit.xml", "result.sarif", "summary.md", "report.txt", "index.html")
    before = {name: Path("out", name).read_bytes() for name in names}
    for name in before:
        Path("out", name).unlink()
    done = command("report", "out")
    assert done.exit_code == 1
    assert first.output.endswith(f"\n\n{done.output}")
    assert {name: Path("out", name).read_bytes() for name in before} == before


def test_a_fault_of_ours_is_no_verdict_on_the_subject(
    faulty: str, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(manager_operations.ManagerOperations, "run", fail)
    assert command("hunt", "--subject", "kvproof", "--seed", "1", "--effort", "100").exit_code == 3
    assert "Traceback" in Path(".kvproof/fault.log").read_text()


def test_an_interrupt_before_the_run_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kvproof.check.runs.configuration.find_configuration", interrupt)
    monkeypatch.setattr("sys.argv", ["kvproof", "hunt"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "kvproof: interrupted\n"


def test_the_commands_are_listed_in_groups_three_first_and_no_sentence_is_cut() -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    sections = text[text.index("Begin with:") :].split("\n\n")
    assert [section.splitlines()[0] for section in sections] == [f"{title}:" for title in GROUPS]
    lines = [line for section in sections for line in section.strip().splitlines()[1:]]
    assert [line.split()[0] for line in lines] == [name for names in GROUPS.values() for name in names]
    assert all(line.endswith(".") and not line.endswith("...") for line in lines), lines
