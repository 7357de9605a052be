"""The folder of a run belongs to one run at a time, and nothing outside it is written."""

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.golden_files import Command
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.hunting.store import ResultStore
from kvproof.check.runs.store import StoreError
from kvproof.spec.verdict import Exit

QUICK = ("--subject", "kvproof", "--effort", "300", "--seed", "1")
CAMPAIGN = """
out = "out"
[[search]]
subjects = ["kvproof"]
seeds = [1]
efforts = ["300"]
"""
WRONG = Path(__file__).resolve().parents[3] / "examples" / "forty_lines_broken.py"
COMMANDS = {
    "hunt": ("hunt", *QUICK, "--out", "out"),
    "verify": ("verify", *QUICK, "--judges", "walker", "--out", "out"),
    "campaign": ("campaign", "nightly.toml", "--workers", "1"),
}


@pytest.fixture
def folder(tmp_path: Path, few_scopes: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a campaign."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nightly.toml").write_text(CAMPAIGN)
    return tmp_path


@pytest.mark.parametrize("command", [*COMMANDS])
@pytest.mark.parametrize("target", ["a file of somebody else", "nothing"])
def test_a_database_that_is_a_link_is_refused_and_nothing_is_written_where_it_points(
    folder: Path, command: str, target: str
) -> None:
    (folder / "out").mkdir()
    (folder / "out" / f"{command}.sqlite").symlink_to(folder / "outside")
    if target != "nothing":
        (folder / "outside").touch()
    done = CliRunner().invoke(app, [*COMMANDS[command]])
    assert (done.exit_code, f"out/{command}.sqlite is a symbolic link" in done.output) == (Exit.USAGE, True)
    assert not (folder / "outside").exists() or (folder / "outside").read_bytes() == b""
    if command != "campaign":
        done = CliRunner().invoke(app, [command, "--resume", "out"])
        assert done.exit_code == Exit.USAGE


@pytest.mark.parametrize("command", [*COMMANDS])
def test_a_folder_of_counterexamples_that_is_a_link_is_refused(folder: Path, command: str) -> None:
    (folder / "out").mkdir()
    (folder / "elsewhere").mkdir()
    (folder / "out" / "crashes").symlink_to(folder / "elsewhere")
    done = CliRunner().invoke(app, [*COMMANDS[command]])
    assert (done.exit_code, "out/crashes is a symbolic link" in done.output) == (Exit.USAGE, True)


HOLDER = """
import sys
from pathlib import Path
from kvproof.check.hunting.store import ResultStore
from kvproof.check.runs.store import Store
store = Store(Path("out"))
if sys.argv[1] != "campaign":
    store.claim()
results = ResultStore(Path("out", sys.argv[1] + ".sqlite"))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold(folder: Path) -> Iterator[Callable[[str], None]]:
    """Let another process hold the folder `out` as a run of this command does."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with ExitStack() as holders:

        def begin(command: str) -> None:
            program = [sys.executable, "-c", HOLDER, command]
            one = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
            )
            holders.enter_context(one)  # at the end its input is closed, so it ends
            assert one.stdout is not None
            assert one.stdout.readline() == "held\n"

        yield begin


@pytest.mark.parametrize("command", [*COMMANDS])
def test_a_second_run_in_a_folder_is_refused_and_what_the_first_keeps_stays(
    folder: Path, hold: Callable[[str], None], command: str
) -> None:
    """Also one that continues a run, and one of another command."""
    used = {command} if command == "campaign" else {command, "verify"}
    for name in used:
        CliRunner().invoke(app, [*COMMANDS[name]])
    gc.collect()  # it ends the locks of these runs, as the end of a process does
    before = {name: kept_in(folder / "out" / f"{name}.sqlite") for name in used}
    assert all(before.values())
    hold(command)
    others = [COMMANDS[command]]
    if command != "campaign":
        others += [(command, "--resume", "out"), ("verify", "--resume", "out", "--effort", "900"), COMMANDS["verify"]]
    for words in others:
        done = CliRunner().invoke(app, [*words])
        assert done.exit_code == Exit.USAGE, words
        assert "another run of kvproof" in done.output, words
        assert "writes to out; wait until it has ended, or name another folder with --out" in flat(done.output)
    if command == "hunt":  # the database of the other one is not locked
        assert kept_in(folder / "out" / "verify.sqlite") == before["verify"]


def test_a_campaign_says_what_it_found_also_when_it_is_begun_once_more(folder: Path, command: Command) -> None:
    """One subject is wrong, one is not there. Their names have one length in every checkout."""
    for name in ("forty_lines.py", WRONG.name):
        shutil.copy(WRONG.with_name(name), folder)
    (folder / "nightly.toml").write_text(
        CAMPAIGN.replace('"kvproof"', f'"{WRONG.name}:Adapter", "{WRONG.name}:Nobody"')
    )
    for _ in range(2):
        assert command(*COMMANDS["campaign"]).exit_code == Exit.REFUTED
        gc.collect()  # it ends the lock of this run, as the end of a process does


def test_a_refused_resume_leaves_the_database_as_it_was(folder: Path) -> None:
    CliRunner().invoke(app, ["hunt", "--subject", f"{WRONG}:Adapter", "--effort", "300", "--seed", "1", "--out", "out"])
    gc.collect()
    before = (folder / "out" / "hunt.sqlite").read_bytes()
    done = CliRunner().invoke(app, ["hunt", "--resume", "out"])
    assert done.exit_code == Exit.USAGE
    assert "runs no code because a file names it" in flat(done.output)
    assert (folder / "out" / "hunt.sqlite").read_bytes() == before


def kept_in(file: Path) -> list[tuple[str, bytes]]:
    """The keys and results in a database."""
    with closing(sqlite3.connect(file)) as database:
        return database.execute("SELECT key, result FROM results ORDER BY key").fetchall()


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("damage", ["a key that is no text", "a page"])
def test_damage_that_is_found_by_the_read_of_a_row_is_one_message(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "units.sqlite"
    store = ResultStore(file)
    for number in range(400):
        store.add(f"key {number}", "", 0.0, [number] * 40)
    store.close()
    if damage == "a page":
        data = bytearray(file.read_bytes())
        data[3 * 4096 : 3 * 4096 + 64] = bytes(range(255, 191, -1))
        file.write_bytes(data)
    else:
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("UPDATE results SET key = CAST(x'ff' AS TEXT) WHERE key = 'key 7'")
    with closing(ResultStore(file)) as damaged, pytest.raises(StoreError, match=r"units\.sqlite cannot be used: "):
        damaged.check()


def test_a_result_of_many_megabytes_is_not_read_into_memory(tmp_path: Path) -> None:
    file = tmp_path / "units.sqlite"
    ResultStore(file).close()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("INSERT INTO results VALUES ('key', '', 0.0, zeroblob(30000000))")
    with closing(ResultStore(file)) as store, pytest.raises(StoreError, match="too big"):
        store.find("key")
