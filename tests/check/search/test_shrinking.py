"""The shrinker: what it takes, what it never runs twice, and what is simpler than what."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kvproof.check.hosts.time_limit import HANG_SECONDS, call_seconds
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, PromptKeys
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search import shrinking
from kvproof.check.search.random_walk import WalkOptions
from kvproof.check.search.random_walk import walk as random_walk
from kvproof.check.search.result import SearchResult
from kvproof.check.search.shrinking import Shrinker, sort_key
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

LATER = 1e12  # a deadline that does not come
CONFIG = Config()
RUN: list[Operation] = [("new", 1, (1,), (0, 1)), ("admit", 1, 2), ("run", 1)]
FINDING = Finding("read-back", "wrong", "admit KeyError")
Judge = Callable[[Config, Sequence[Operation]], Finding | None]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, list[Operation]]]:
    """Every run that a shrinker does on a subject that refutes whatever admits a group."""
    done = []

    def finding_of(subject: Any, config: Config, operations: list[Operation]) -> Finding | None:
        done.append((config, operations))
        return FINDING if any(name == "admit" for name, *_ in operations) else None

    monkeypatch.setattr(shrinking, "finding_of", finding_of)
    return done


def shrinker(deadline: float = LATER) -> Shrinker:
    return Shrinker(None, Counterexample(CONFIG, RUN, FINDING), deadline)


def test_a_shorter_run_that_refutes_in_the_same_way_is_taken(runs: list[Any]) -> None:
    one = shrinker()
    assert one.consider(CONFIG, RUN[:2])
    assert one.best == Counterexample(CONFIG, RUN[:2], FINDING)


def test_a_run_that_refutes_nothing_is_not_taken_and_not_run_again(runs: list[Any]) -> None:
    one = shrinker()
    assert [one.consider(CONFIG, RUN[:1]) for _ in range(3)] == [False] * 3
    assert runs == [(CONFIG, RUN[:1])]
    assert one.best.operations == RUN


@pytest.mark.parametrize("other", [Finding("read-back", "wrong", "admit TypeError"), Finding("conservation", "wrong")])
def test_another_kind_of_finding_is_not_taken(other: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "finding_of", lambda *_: other)
    assert not shrinker().consider(CONFIG, RUN[:2])


def test_a_run_that_is_not_simpler_is_not_even_run(runs: list[Any]) -> None:
    one = shrinker()
    assert not one.consider(CONFIG, RUN)
    assert not one.consider(Config(num_gpu_blocks=9), RUN)
    assert not one.consider(CONFIG, [*RUN, ("run", 0)])
    assert runs == []


def test_nothing_is_run_after_the_deadline(runs: list[Any]) -> None:
    one = shrinker(deadline=0.0)
    assert not one.consider(CONFIG, RUN[:2])
    assert one.run([lambda shrinker: pytest.fail("a pass was run")]).operations == RUN
    assert runs == []


def test_the_cheap_passes_are_run_again_after_each_success_and_the_last_ones_once(runs: list[Any]) -> None:
    order = []

    def cheap(one: Shrinker) -> None:
        order.append("cheap")

    def structural(one: Shrinker) -> None:
        order.append("structural")
        one.consider(CONFIG, RUN[:2])

    shrinker().run([cheap, structural])
    assert order == ["cheap", "structural", "cheap", "structural"]


@pytest.mark.parametrize(
    ("simpler", "other"),
    [
        ((CONFIG, [("new", 1, (1,), (0,) * 9)]), (CONFIG, RUN)),  # fewer operations count first
        ((CONFIG, [("new", 1, (1,), (0,))]), (CONFIG, [("new", 1, (1,), (0, 0))])),
        ((CONFIG, [("new", 1, (1,), (0,))]), (CONFIG, [("new", 1, (1,), (1,))])),
        ((CONFIG, [("new", 1, (1,), (0,))]), (CONFIG, [("new", 1, (1,), (0,), ("X", 1, None))])),
        ((Config(window=None), RUN), (Config(window=1), RUN)),
        ((Config(kv_groups=("full",)), RUN), (Config(kv_groups=("full", "window")), RUN)),
        ((Config(caching=False), RUN), (Config(caching=True), RUN)),
        ((SchedulerConfig(preemption="auto"), RUN), (SchedulerConfig(preemption="swap"), RUN)),
        # A budget that no small run reaches says less than a small one, and the default says least.
        ((SchedulerConfig(), RUN), (SchedulerConfig(max_num_batched_tokens=70), RUN)),
        ((SchedulerConfig(max_num_batched_tokens=70), RUN), (SchedulerConfig(max_num_batched_tokens=6), RUN)),
        ((SchedulerConfig(max_num_batched_tokens=5), RUN), (SchedulerConfig(max_num_batched_tokens=6), RUN)),
    ],
)
def test_the_simpler_of_two_runs_has_the_smaller_key(simpler: Any, other: Any) -> None:
    assert sort_key(*simpler) < sort_key(*other)


def test_a_walk_to_a_shorter_run_uses_no_feature_that_the_run_does_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(caching=True, keys=PromptKeys.ADAPTERS)
    run: list[Operation] = [("new", 1, (1,), (0, 1), (None, 0, None), ()), ("admit", 1, 2), ("preempt", 1)]
    walks: list[tuple[dict[str, Any], frozenset[str]]] = []

    def walk(*_: Any, fixed: dict[str, Any], options: WalkOptions, **others: Any) -> SearchResult:
        walks.append((fixed, options.disabled))
        return SearchResult()

    monkeypatch.setattr(shrinking, "walk", walk)
    monkeypatch.setattr(shrinking, "_shrunk", lambda subject, one: one.best)
    found = Counterexample(config, run, FINDING)
    shrinking.shortest(MANAGERS, lambda: None, found, seconds=LATER, seed=1, long=1, walks=2)
    (any_config, without), (same_config, same) = walks
    assert without == same
    assert {"keys", "images", "window", "fork", "swap_out"} <= without
    assert not {"caching", "admit", "preempt"} & without
    assert not any_config
    assert same_config["caching"]
    assert "keys" not in same_config


def test_what_the_user_has_fixed_keeps_its_value(runs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = Counterexample(Config(caching=True, num_gpu_blocks=9), RUN, FINDING)
    free = Shrinker(None, found, LATER)
    assert free.run(shrinking.PASSES).config.caching is False
    fixed = Shrinker(None, found, LATER, fixed=("caching", "num_gpu_blocks"))
    best = fixed.run(shrinking.PASSES)
    assert len(best.operations) == 1
    assert (best.config.caching, best.config.num_gpu_blocks) == (True, 9)

    walks: list[dict[str, Any]] = []

    def walk(*_: Any, fixed: dict[str, Any], options: WalkOptions, **others: Any) -> SearchResult:
        assert "caching" not in options.disabled
        walks.append(fixed)
        return SearchResult()

    monkeypatch.setattr(shrinking, "walk", walk)
    monkeypatch.setattr(shrinking, "_shrunk", lambda subject, one: one.best)
    shrinking.shortest(MANAGERS, lambda: None, found, seconds=LATER, seed=1, long=1, walks=2, fixed=("caching",))
    assert walks[0] == {"caching": True}
    assert walks[1]["caching"]


@pytest.mark.parametrize("kind", ["preempt", "fork", "free", "swap_out", "reset"])
def test_a_walk_never_uses_the_features_that_it_disables(kind: str) -> None:
    configs, kinds = drawn_runs(frozenset({kind, "keys"}))
    assert not any(one.keys > PromptKeys.TOKENS for one in configs)
    assert any(one.caching for one in configs)
    assert {"preempt", "fork", "free", "swap_out", "reset"} - kinds == {kind}


def drawn_runs(disabled: frozenset[str]) -> tuple[list[Config], set[str]]:
    """The configurations and the kinds of operation of a walk on the built-in manager."""
    configs: list[Config] = []

    def begin(config: Config) -> list[Operation]:
        configs.append(config)
        return []

    options = WalkOptions(begin=begin, disabled=disabled)
    done = random_walk(MANAGERS, find("kvproof")(), 1, max_operations=6_000, seconds=LATER, options=options)
    return configs, set(done.kinds)


# A call that does not return ----------------------------------------------------------------------------------------

HANG = Finding("total-calls", "admit(1) gave no answer within 3 s", "admit hang")


def hanging(monkeypatch: pytest.MonkeyPatch, call_takes: float) -> list[tuple[int, float]]:
    """Every run of a shrinker, as its length and the limit of its calls; `admit` takes so many seconds."""
    done = []

    def finding_of(subject: Any, config: Config, operations: list[Operation]) -> Finding | None:
        seconds = call_seconds(3.0)
        done.append((len(operations), seconds))
        if all(name != "admit" for name, *_ in operations) or call_takes < seconds:
            return None
        return Finding("total-calls", f"admit(1) gave no answer within {seconds:g} s", "admit hang")

    monkeypatch.setattr(shrinking, "finding_of", finding_of)
    return done


def test_a_run_that_hangs_is_shrunk_with_short_calls_and_confirmed_with_usual_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = hanging(monkeypatch, call_takes=100)
    short = shrinking.shrink(None, Counterexample(CONFIG, [*RUN], HANG), 1e9)
    assert ([operation[0] for operation in short.operations], short.finding.text) == (["admit"], HANG.text)
    assert {seconds for _, seconds in done[:-1]} == {HANG_SECONDS}
    assert done[-1] == (1, 3.0)


def test_a_run_with_a_call_that_is_only_slow_stays_as_it_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    done, found = hanging(monkeypatch, call_takes=1), Counterexample(CONFIG, [*RUN], HANG)
    assert shrinking.shrink(None, found, 1e9) is found
    assert len(done) > 2


def test_a_replay_counts_for_more_only_if_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging(monkeypatch, call_takes=100)
    shrinker = Shrinker(None, Counterexample(CONFIG, [*RUN], HANG), LATER)
    assert not shrinker.consider_operations(RUN[:1])
    assert shrinker.num_operations == 1
    assert shrinker.consider_operations(RUN[1:])
    assert shrinker.num_operations > 100
