"""What no command can do: it is refused before anything is done, and the golden file of the command says how.

One line is one request. Its words are in `tests/golden/<command>.txt`.
"""

import os
import shlex
from pathlib import Path

import pytest
from tests.golden_files import COMMANDS, Command

from kvproof.reports.document import write
from kvproof.reports.result import Result, Run

REQUESTS = """
baseline accept
baseline accept nowhere
bisect
bisect --subject kvproof --trace x 1.0
bisect --subject vllm-v0 --trace nowhere.json 0.9.2
campaign --rows nothing
campaign nothing
compare a b
compare a b --history none.db
config nothing
device --baseline nothing_here.py
device --baseline nowhere.json
device --baseline plain.json
device --device cpu --dtype bf16
device --device cpu --executor enigne
device --device cpu --executor nothing_here.py:left
device --device cpu --executor nowhere:move
device --device cpu --layout hdn
device --device none
device --device tpu
device campare
device compare none.json
engines add
engines add vllm
examples nothing_here.py/folder
explore --scope lokahead
explore --subject kvproof-scheduler
faults --jobs 0
faults --of impl --judge prover
faults --of impl --only look-upp
faults --only evict --only begin_fre
faults --resume
faults --workers 0
history
history --history none.db
hunt
hunt --resume nowhere
hunt --subject kvproof --known nowhere.toml
hunt --subject nothing:make
hunt --subject nothing_here.py:broken
init --yes --capability fork,caching
init --yes --capability forks
init --yes --capability has_admission_query
init --yes --capability refusal_slack
init --yes --language cobol
init --yes --name 'a b'
prove --json .
prove --only specification/begin_swap --save-baseline efforts.json
prove --text nowhere.py
record
record --out nothing_here.py -- true
record --out run.jsonl -- ./no-such-command
record --subject kvproof -- true
record --subject kvproof --digest-key ''
record --subject kvproof --steps 5 --out /proc/none
record --subject kvproof --steps 5 --out nothing_here.py
record --subject kvproof-pool
replay
replay nowhere.json
report nothing_here.py
report nowhere
subjects nothing
validate
verfy
verify --json .
verify --out nothing_here.py
verify --sed 1
verify --seed -1
verify --subject kvprof
verify --subject pipe:./manager --device cpu
watch
watch -- ./no-such-command
watch --metrics nine -- true
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a subject that cannot be made, and a result without speeds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing_here.py").write_text("def broken():\n    raise RuntimeError('no engine here')\n")
    write(tmp_path / "plain.json", Result(Run("0.1", "verify", "kvproof", 1)))
    return tmp_path


@pytest.mark.parametrize("request_", REQUESTS.strip().splitlines())
def test_it_is_refused_and_leaves_nothing_behind(request_: str, command: Command) -> None:
    assert command(*shlex.split(request_)).exit_code == 2
    assert sorted({*os.listdir()} - {"__pycache__"}) == ["nothing_here.py", "plain.json"]


def test_every_command_refuses_something() -> None:
    assert {line.split()[0] for line in REQUESTS.strip().splitlines()} == {*COMMANDS, "verfy"}
