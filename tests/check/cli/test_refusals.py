"""What no command can do: it is refused before anything is done, and the golden file of the command says how.

One line is one request. Its words are in `tests/golden/<command>.txt`.
"""

import shlex
from pathlib import Path

import pytest
from tests.golden_files import COMMANDS, Command

from kvproof.check.hunting.resume import HuntPlan, VerifyPlan, begun
from kvproof.reports.document import write
from kvproof.reports.result import Result, Run

VLLM, SGLANG = "vllm/v1/core/kv_cache_manager.py", "sglang/srt/mem_cache/radix_cache.py"
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
corpus list --affects vllm
corpus list --affects vllm==0.31.0 --engine sglang
corpus list --class event
corpus list --folder nothing
corpus reproduce F9 --checkout there
corpus run F9 --seeds 1,1
corpus run F9 --tool nothing_here
corpus show F0
corpus show F9 --report
corpus validate --folder nothing
device --baseline nothing_here.py
device --baseline nowhere.json
device --baseline plain.json
device --device simulated --baseline plain.json
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
engines add ./both
engines add ./nowhere
engines add ./tree/vllm
engines add vllm
engines add vllm==0.32.0 --like 0.30.0
examples nothing_here.py/folder
explore --like 0.30.0
explore --scope lokahead
explore --subject kvproof-scheduler
faults --jobs 0
faults --of impl --judge prover
faults --of impl --only look-upp
faults --only evict --only begin_fre
faults --resume
faults --workers 0
gate --base main
gate --subject kvproof --base main --effort none
history
history --history none.db
hunt
hunt --resume nowhere
hunt --resume old
hunt --resume there --property read-back
hunt --resume there --seed 4
hunt --resume there --subject kvproof-scheduler
hunt --subject kvproof --fix block_size=0
hunt --subject kvproof --fix num_gpu_blocks=1000000000
hunt --subject kvproof --fix caching
hunt --subject kvproof --fix caching=maybe
hunt --subject kvproof --fix cashing=true
hunt --subject kvproof --known nowhere.toml
hunt --subject kvproof --level loop
hunt --subject kvproof --level page
hunt --subject kvproof --property read-bach
hunt --subject kvproof-pool --fix block_size=2
hunt --subject kvproof-store --fix block_size=2
hunt --subject nothing:make
hunt --subject nothing_here.py:broken
hunt --subject vllm-v1==0.32.0 --like 0.30.0
init --yes --capability fork,caching
init --yes --capability forks
init --yes --capability prefix_cache
init --yes --capability has_admission_query
init --yes --capability refusal_slack
init --yes --language cobol
init --yes --name 'a b'
prove --certificates nothing_here.py
prove --certificates nothing_here.py/folder
prove --certificates there --text old/empty.py
prove --json .
prove --only specification/begin_swap --save-baseline efforts.json
prove --smt2 nothing_here.py
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
replay x.json --subject nano-vllm==./tree --like 1
report nothing_here.py
report nowhere
subjects nothing
validate
verfy
verify --json .
verify --out nothing_here.py
verify --resume foreign
verify --resume nowhere
verify --resume there --judges walker
verify --resume there --require walker
verify --resume there --seed 4
verify --sed 1
verify --seed -1
verify --subject kvprof
verify --subject pipe:./manager --device cpu
verify --subject vllm-v1==0.32.0@./tree --like 0.30.0
watch
watch -- ./no-such-command
watch --metrics nine -- true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a subject that cannot be made, runs to resume, trees of engines, and a result without speeds."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "nothing_here.py").write_text("def broken():\n    raise RuntimeError('no engine here')\n")
    write(folder / "plain.json", Result(Run("0.1", "verify", "kvproof", 1)))
    for plan in (HuntPlan("kvproof", 3), VerifyPlan("kvproof", 3)):
        begun(folder / "there", plan).close()
    begun(folder / "foreign", VerifyPlan("pipe:touch ran", 3)).close()
    write(folder / "there" / "result.json", Result(Run("0.1", "hunt", "kvproof", 3)))
    for file in ("old/hunt.json", "old/empty.py", f"both/{VLLM}", f"both/{SGLANG}", f"tree/{VLLM}"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return folder


@pytest.mark.parametrize("request_", REQUESTS.strip().splitlines())
def test_it_is_refused_and_leaves_nothing_behind(
    folder: Path, request_: str, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KVPROOF_CACHE", str(folder / "cache"))
    before = names(folder)
    assert command(*shlex.split(request_)).exit_code == 2
    assert names(folder) == before


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"__pycache__"}


def test_every_command_refuses_something() -> None:
    assert {line.split()[0] for line in REQUESTS.strip().splitlines()} == {*COMMANDS, "verfy"}
