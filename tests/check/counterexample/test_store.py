"""Crash files: what is written, what is refused, and what a replay says."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.check import assert_fixed
from kvproof.check.counterexample.replay import ReplayStatus
from kvproof.check.counterexample.store import load, make_trace, path_of_test, raw_trace, save
from kvproof.check.counterexample.trace_schema import CounterexampleError
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Observation, Refused
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.protocol.store import Staged, StoreConfig
from kvproof.check.runs.replay import Trust, replay
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.check.subjects.builtin.store import OwnStore
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation, Trace

pytest_plugins = ["pytester"]

Factory = Callable[[], ManagerSubject]

COUNTS = "            self.refcounts[block] += 1\n"
FORGETS = "            pass\n"
CONFIG = Config(block_size=1, num_gpu_blocks=2)
RUN: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0), ("fork", 1, 2)]
FINDING = Finding("refcount-exact", "fork(1, 2): refcount of block 1: the specification says 2, the subject 1")
STEPS = [
    "new(group 1, sequence 1, 1 token: 0)",
    "admit(group 1)             admitted; sequence 1: block 1",
    "run()                      computes 1 token of sequence 1",
    "fork(sequence 1, into 2)   sequence 2: block 1",
]

TRUSTED = Trust(is_total=True)


@pytest.fixture
def manager(tmp_path: Path, example_source: str) -> Path:
    """The example with a fork that forgets its references, in a file of its own."""
    assert example_source.count(COUNTS) == 1
    path = tmp_path / "broken.py"
    path.write_text(example_source.replace(COUNTS, FORGETS))
    return path


@pytest.fixture
def trace(manager: Path) -> Trace:
    name = f"{manager}:Adapter"
    return make_trace(
        name, Counterexample(CONFIG, RUN, FINDING), "walker", 7, make=find(name), num_operations_before=40
    )


@pytest.fixture
def crash_file(trace: Trace, tmp_path: Path) -> Path:
    return save(tmp_path / "crashes", trace)


def edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
    return path


def fix(manager: Path) -> None:
    manager.write_text(manager.read_text().replace(FORGETS, COUNTS))


def test_a_trace_tells_its_steps_with_what_the_manager_answered(trace: Trace) -> None:
    assert trace.steps == STEPS
    assert trace.config == {"block_size": 1, "num_gpu_blocks": 2}


def test_a_saved_trace_is_loaded_unchanged(trace: Trace, crash_file: Path) -> None:
    assert load(crash_file) == trace


def test_a_file_is_named_by_its_property_and_its_content(trace: Trace, crash_file: Path) -> None:
    trace.seed, trace.judge = 8, "hypothesis"
    again = save(crash_file.parent, trace)
    trace.operations[0][3] = [1]
    other = save(crash_file.parent, trace)

    assert again == crash_file
    assert other != crash_file
    assert crash_file.stem[: len("refcount-exact-")] == "refcount-exact-"
    assert 4 <= len(crash_file.stem) - len("refcount-exact-") <= 8


def test_another_file_of_the_same_name_is_kept_and_the_name_grows(trace: Trace, crash_file: Path) -> None:
    crash_file.write_text("someone else's")

    longer = save(crash_file.parent, trace)

    assert crash_file.read_text() == "someone else's"
    assert len(longer.stem) == len(crash_file.stem) + 1


def test_a_replay_fails_while_the_manager_is_broken_and_passes_once_it_is_fixed(
    crash_file: Path, manager: Path
) -> None:
    broken = replay(crash_file, trusted=TRUSTED)
    fix(manager)
    fixed = replay(crash_file, trusted=TRUSTED)

    assert broken.status is ReplayStatus.FAILED
    fork = manager.read_text().partition("def fork(")[0].count("\n") + 1
    assert broken.text.splitlines()[1:12] == [
        f"refcount-exact is refuted for {manager}:Adapter at step 4 (walker).",
        "  fork(sequence 1, into 2): refcount of block 1: the specification says 2, the subject 1",
        f"  while calling BlockManager.fork of {manager}:{fork}",
        "  expected: 2   observed: 1",
        "  A block's refcount is the number of block-table entries that name it.",
        f"  Repeat: kvproof replay {crash_file} --subject {manager}:Adapter",
        "  The steps, with block_size 1, num_gpu_blocks 2:",
        *[f"    {number}  {step}" for number, step in enumerate(STEPS, start=1)],
    ]
    assert (fixed.status, fixed.finding) == (ReplayStatus.FIXED, None)
    assert fixed.text == "refcount-exact holds: 4 operations, and nothing is refuted"


def test_a_replay_on_another_subject_is_about_that_one(crash_file: Path) -> None:
    assert replay(crash_file, "kvproof").status is ReplayStatus.FIXED
    assert replay(crash_file, find("kvproof")).status is ReplayStatus.FIXED


class NoForks(BuiltIn):
    """It forks no more."""

    capabilities = replace(BuiltIn.capabilities, fork=False)


class NoRefcounts(BuiltIn):
    """It shows its refcounts no more."""

    def observe(self) -> Observation:
        return super().observe()._replace(refs=None)


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (NoForks, "operation 4 (fork) is not declared by the subject"),
        (NoRefcounts, "the subject shows no refcounts"),
    ],
)
def test_a_replay_that_cannot_show_the_fault_is_no_success(
    crash_file: Path, subject: Callable[[], ManagerSubject], said: str
) -> None:
    done = replay(crash_file, subject)
    assert (done.status, done.text) == (ReplayStatus.ERROR, f"refcount-exact is not decided: {said}")


class NoAborts(BuiltInScheduler):
    """No request is aborted any more."""

    capabilities = replace(BuiltInScheduler.capabilities, aborts=False)


class NeverEvicts(OwnStore):
    """It refuses a store that does not fit, and evicts nothing for it."""

    capabilities = replace(OwnStore.capabilities, refusal_slack=None)

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        return super().begin_store(transfer, request, keys) if len(self.slots.free) >= len(keys) else Refused("full")


def ran(*tokens: int) -> list[Operation]:
    """A request with this prompt samples one token, and is then aborted."""
    step: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]
    return [("add", 1, (1,), tokens, 1), *step, ("abort", 1)]


def stored(*keys: int) -> list[Operation]:
    """Each of these keys is stored, one after the other. Then key 1 is loaded."""
    each = [[("begin_store", key, 1, (key,)), ("land", key), ("report", key)] for key in keys]
    return [*(operation for store in each for operation in store), ("begin_load", 9, 1, (1,))]


@pytest.mark.parametrize(
    ("subject", "config", "operations", "said"),
    [
        (BuiltInScheduler, SchedulerConfig(), ran(0), "operation 5 (abort) is not possible here"),
        (NoAborts, SchedulerConfig(), ran(0), "operation 5 (abort) is not declared by the subject"),
        (BuiltInScheduler, SchedulerConfig(), ran(0)[:-1], ""),
        (  # it ignores the prompt
            BuiltInScheduler,
            SchedulerConfig(max_model_len=2),
            ran(0, 0, 0),
            "operation 5 (abort) is not possible here",
        ),
        (OwnStore, StoreConfig(num_gpu_blocks=2), stored(2), "operation 4 (begin_load) is not possible here"),
        (OwnStore, StoreConfig(num_gpu_blocks=2), stored(1, 2), ""),
        (  # it has evicted key 1
            OwnStore,
            StoreConfig(num_gpu_blocks=2),
            stored(1, 2, 3),
            "operation 10 (begin_load) is not possible here",
        ),
        (  # it has refused key 1
            NeverEvicts,
            StoreConfig(num_gpu_blocks=1),
            stored(2, 1),
            "operation 5 (land) is not possible here, and 2 more of 7",
        ),
    ],
)
def test_a_replay_decides_nothing_if_an_operation_is_impossible(
    tmp_path: Path, subject: Callable[[], Any], config: Config, operations: list[Operation], said: str
) -> None:
    trace = raw_trace("kvproof", Counterexample(config, operations, Finding("total-calls", "it raised")), "loop", 1)
    done = replay(save(tmp_path, trace), subject)
    if said:
        assert (done.status, done.text) == (ReplayStatus.ERROR, f"total-calls is not decided: {said}")
    else:
        assert done.status is ReplayStatus.FIXED, done.text


def test_a_manager_that_refuses_what_led_to_the_fault_does_not_show_whether_it_is_fixed(crash_file: Path) -> None:
    edited(crash_file, lambda data: data["operations"][0].__setitem__(3, [0, 0, 0]))  # more than the pool has
    done = replay(crash_file, "kvproof")
    assert done.status is ReplayStatus.ERROR, done.text
    assert done.text == "refcount-exact is not decided: operation 3 (run) is not possible here, and 1 more of 4"


def test_a_replay_on_another_subject_names_the_method_of_that_one(crash_file: Path, manager: Path) -> None:
    edited(crash_file, lambda data: data.update(method={"function": "X.y", "file": "old.py", "line": 3}))
    other = manager.with_name("other.py")
    other.write_text(manager.read_text())
    text = replay(crash_file, f"{other}:Adapter").text
    assert f"of {other}:" in text
    assert "old.py" not in text


def test_a_replay_that_finds_something_else_says_so(crash_file: Path, altered: Callable[..., Factory]) -> None:
    done = replay(crash_file, altered(num_free=lambda self: 0))

    assert done.status is ReplayStatus.FAILED
    assert done.finding is not None
    assert done.text.startswith(
        f"refcount-exact was refuted when the trace was saved; now it is {done.finding.property}\n"
    )


def test_a_replay_that_does_not_repeat_is_nondeterministic(crash_file: Path, altered: Callable[..., Factory]) -> None:
    answers = iter([False] + [True] * 99)

    done = replay(crash_file, altered(can_allocate=lambda self, tokens: next(answers)))

    assert done.status is ReplayStatus.FAILED
    assert done.finding is not None
    assert done.finding.property == "nondeterministic"
    assert "can_admit(1); it answered NEVER, then OK" in done.text


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("nowhere:Adapter", "nowhere cannot be imported"),
        ("kvprof", "did you mean kvproof?"),
    ],
)
def test_a_replay_on_an_unknown_subject_is_an_error(crash_file: Path, subject: str, said: str) -> None:
    done = replay(crash_file, subject)

    assert done.status is ReplayStatus.ERROR
    assert said in done.text


@pytest.mark.parametrize(("subject", "level"), [("kvproof-scheduler", "scheduler"), ("kvproof-store", "store")])
def test_a_run_of_another_level_is_no_fault_of_an_adapter(crash_file: Path, subject: str, level: str) -> None:
    done = replay(crash_file, subject)
    said = f"it is a run of a manager, and {subject} is a {level}: nothing was replayed"
    assert (done.status, done.text) == (ReplayStatus.ERROR, said)


def test_a_replay_in_a_configuration_that_the_subject_refuses_is_an_error(crash_file: Path) -> None:
    edited(crash_file, lambda document: document["config"].update(caching=True))

    assert replay(crash_file, trusted=TRUSTED).text == (
        "the subject refuses the configuration of the trace: forty-lines has no prefix cache"
    )


def test_a_trace_without_operations_is_about_the_start(crash_file: Path) -> None:
    edited(crash_file, lambda document: document.update(operations=[], steps=[]))

    done = replay(crash_file, find("kvproof"))

    assert done.status is ReplayStatus.FIXED
    assert done.text.endswith("holds: the subject was opened, and nothing is refuted")


def test_a_file_of_which_no_operation_is_possible_replays_nothing(crash_file: Path) -> None:
    edited(crash_file, lambda document: document.update(operations=[["append", 1]]))

    done = replay(crash_file, trusted=TRUSTED)

    assert (done.status, done.text) == (
        ReplayStatus.ERROR,
        "none of the 1 operations is possible: nothing was replayed",
    )


def test_a_relative_manager_file_is_found_from_a_folder_above_the_crash_file(
    crash_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(crash_file, lambda document: document.update(subject="broken.py:Adapter"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert replay(crash_file, trusted=TRUSTED).status is ReplayStatus.FAILED


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not JSON"),
        ('{"subject": "x"', "is not JSON"),
        ("[]", "no schema_version"),
        ('{"schema_version": 99}', "written by a newer kvproof"),
        ('{"schema_version": 1, "subject": 5}', "is not a trace of kvproof"),
    ],
)
def test_a_broken_or_foreign_file_is_refused_with_one_message(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)

    with pytest.raises(CounterexampleError, match=re.escape(said)):
        load(path)
    assert replay(path).status is ReplayStatus.ERROR


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CounterexampleError, match="cannot read"):
        load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d: d.update(property="speed"), "there is no property 'speed'"),
        (lambda d: d["config"].update(colour=1), "a configuration has no field 'colour'"),
        (lambda d: d["config"].update(block_size="4"), "Expected `int`, got `str`"),
        (lambda d: d["config"].update(block_size=0), "block_size is at least 1; 0 was given"),
        (lambda d: d["config"].update(num_gpu_blocks=10**9), "num_gpu_blocks is at most 100,000; 1000000000 was given"),
        (lambda d: d["config"].update(window=-3), "window is at least 1; -3 was given"),
        (lambda d: d["config"].update(watermark=2.0), "watermark is a fraction of the GPU blocks"),
        (lambda d: d["config"].update(lookahead=-1), "lookahead is at least 0; -1 was given"),
        (lambda d: d["config"].update(kv_groups=["half"]), "or window or local or state; half was given"),
        (lambda d: d.update(operations=[["fly", 1]]), "operation 1 is 'fly'"),
        (lambda d: d.update(operations=[[]]), "operation 1 is None"),
        (lambda d: d.update(operations=[["fork", 1]]), "fork, has 1 argument; it takes parent, child"),
        (lambda d: d.update(operations=[["free", "1"]]), "Expected `int`, got `str` - at `$.operations[0][1]`"),
        (lambda d: d.update(operations=[["new", 1, [1], []]]), "`$.operations[0][3]`"),
        (lambda d: d.update(operations=[["new", 1, [1], [0], ["X"]]]), "`$.operations[0][4]`"),
    ],
)
def test_a_file_that_was_edited_into_nonsense_is_refused(
    crash_file: Path, edit: Callable[[dict[str, Any]], object], said: str
) -> None:
    with pytest.raises(CounterexampleError, match=re.escape(said)):
        load(edited(crash_file, edit))


def test_the_assertion_of_a_regression_test_carries_the_refutation(crash_file: Path, manager: Path) -> None:
    name = f"{manager}:Adapter"
    with pytest.raises(AssertionError, match="refcount-exact is still refuted"):
        assert_fixed(crash_file, name)
    fix(manager)
    assert_fixed(crash_file, name)
    manager.unlink()
    with pytest.raises(CounterexampleError, match="there is no file"):
        assert_fixed(crash_file, name)


def test_the_regression_test_beside_it_fails_and_then_passes_under_pytest(
    crash_file: Path, manager: Path, pytester: pytest.Pytester
) -> None:
    test = str(path_of_test(crash_file))

    broken = pytester.runpytest_inprocess(test)
    fix(manager)
    fixed = pytester.runpytest_inprocess(test)

    assert (broken.ret, fixed.ret) == (1, 0)
    assert "refcount of block 1: the specification says 2, the subject 1" in broken.stdout.str()


def test_a_message_of_an_engine_cannot_break_the_regression_test(trace: Trace, tmp_path: Path) -> None:
    trace.text = 'quotes """ and \\ and \ud800 and a\rreturn \x00'

    path = save(tmp_path / "crashes", trace)

    compile(path_of_test(path).read_bytes(), "test", "exec")
    assert load(path).text.startswith('quotes """ and \\ and ')
