"""Steering around what was found: a run leaves out a feature of each fault, and no more than that."""

from collections import Counter
from random import Random

import pytest

from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, PromptKeys
from kvproof.check.search import random_walk
from kvproof.check.search.random_walk import WalkOptions
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.search.suppression import Features, disabled_features, every_feature, features_of, is_duplicate
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.spec.trace import Operation

FORKS = ("refcount-exact", "fork: refcount of block: the specification says the subject, too small")


class TwoFaults(BuiltIn):
    """Its fork forgets a reference, always; its preempt raises."""

    def fork(self, parent: int, child: int) -> None:
        super().fork(parent, child)
        for block in self.manager.tables[parent].ids:
            self.manager.refcounts[block] -= 1

    def preempt(self, group: int) -> None:
        raise RuntimeError("no preemption here")


def test_the_features_of_a_run_are_its_flags_and_the_operations_that_it_could_do_without() -> None:
    run: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0), ("fork", 1, 2)]
    assert features_of(
        Config(window=2, block_size=1, num_gpu_blocks=3, keys=PromptKeys.ADAPTERS_AND_SALTS, cross=True), run
    ) == ("window", "fork")


def test_keys_images_and_encoders_are_features_of_the_prompts_that_have_them() -> None:
    plain, image = (None, 0, None), (("P", 0, 1),)
    assert features_of(Config(), [("new", 1, (1,), (0,), plain, image), ("new", 2, (2,), (0,))]) == ("images",)
    assert features_of(Config(), [("add", 1, (1,), (0,), 4, ("X", 1, None), (), (9, (0,)))]) == ("keys", "cross")
    transferred = ("add", 1, (1,), (0,), 4, plain, image, None, (1, True))
    assert features_of(Config(), [transferred]) == ("images",)


def test_what_comes_without_a_feature_that_a_known_finding_needs_is_another_finding() -> None:
    finding = Finding("no-use-after-free", "admit(2): the block taken is free; block 1 is used")
    known = [(*finding.key([("admit", 2, 1)]), ("caching", "keys"))]
    keyed: list[Operation] = [("new", 2, (2,), (0,), ("X", 1, None)), ("admit", 2, 1)]
    assert is_duplicate(known, Counterexample(Config(caching=True, chunked=True), keyed, finding))
    plain: list[Operation] = [("new", 2, (2,), (0,)), ("admit", 2, 1)]
    assert not is_duplicate(known, Counterexample(Config(caching=True), plain, finding))
    other = Finding("read-back", finding.text)
    assert not is_duplicate(known, Counterexample(Config(caching=True), keyed, other))


def test_a_run_meets_no_fault_that_it_is_steered_around_and_keeps_all_else() -> None:
    found: list[Features] = [("caching", "fork"), ("window",), ("caching", "swap_out"), ()]
    known = [("read-back", "run: some", features) for features in found]
    times: Counter[frozenset[str]] = Counter(disabled_features(Random(seed), known) for seed in range(400))
    assert set(times) >= {frozenset({"caching", "window"}), frozenset({"fork", "swap_out", "window"}), frozenset()}
    for without in times:
        assert without < {*every_feature()}
        assert without <= {"caching", "fork", "window", "swap_out"}
        for feature in without:  # nothing is left out in vain
            assert any(without & set(features) == {feature} for features in found)


def test_a_steered_walk_passes_over_known_failures_and_finds_the_ones_behind_them() -> None:
    options = WalkOptions(known=((*FORKS, ("fork",)),))
    done = random_walk.walk(MANAGERS, TwoFaults(), 1, max_operations=20_000, seconds=100, options=options)
    assert isinstance(done.finding, Finding)
    assert done.finding.cause == "preempt RuntimeError"
    first = random_walk.walk(MANAGERS, TwoFaults(), 1, max_operations=20_000, seconds=100)
    assert first.counterexample is not None
    assert first.counterexample.kind == FORKS


@pytest.mark.parametrize("wanted", [("total-calls", "preempt RuntimeError"), ("refcount-exact", "")])
def test_a_walk_for_one_kind_ends_with_no_other(wanted: tuple[str, str]) -> None:
    done = random_walk.walk(
        MANAGERS, TwoFaults(), 2, max_operations=20_000, seconds=100, options=WalkOptions(wanted=wanted)
    )
    assert done.finding is not None
    assert done.finding.kind == wanted
