"""Configurations of several KV groups: which are drawn, kept, made simpler, and refused."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from kvproof.check.oracle.expected import ExpectedSequence, Group
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.oracle import check_kv_groups
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.features import one_or_fewer_kv_groups
from kvproof.check.protocol.manager import WINDOW, Config, Unsupported, fault_of_kv_groups
from kvproof.check.runs.arguments import Narrowed, agrees, fixed_fields
from kvproof.check.runs.errors import UsageError
from kvproof.check.search.configurations import draw
from kvproof.check.search.exhaustive.manager import HUNTED_SCOPES
from kvproof.check.subjects.registry import find
from kvproof.spec.text.identity import Identities, Key

CAN = Capabilities(window=True, caching=True, window_with_caching=True, cross=True, kv_groups=True)
HYBRID = replace(CAN, block_sizes=True, states=True)
NUM_DRAWN = 300


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        (Config(), (0,)),
        (Config(window=5), (5,)),
        (Config(window=5, kv_groups=("full", "window", "window")), (0, 5, 5)),
        (Config(kv_groups=("full", "full")), (0, 0)),
    ],
)
def test_each_group_has_its_window(config: Config, windows: tuple[int, ...]) -> None:
    assert config.windows == windows


def test_several_groups_are_drawn_often_with_and_without_a_cache_and_a_window_comes_with_a_group_that_has_it() -> None:
    drawn = [draw(Random(seed), CAN) for seed in range(NUM_DRAWN)]
    several = [config for config in drawn if len(config.kv_groups) > 1]
    assert all((config.window is not None) == (WINDOW in config.kv_groups) for config in several)
    assert not any(config.cross for config in several)
    assert len(several) > NUM_DRAWN / 5
    for caching in (False, True):
        assert len({config.kv_groups for config in several if config.caching == caching}) == 4


def test_fixed_fields_decide_which_groups_are_drawn() -> None:
    with_window = [draw(Random(seed), CAN, {"window": 3}) for seed in range(NUM_DRAWN)]
    without = [draw(Random(seed), CAN, {"window": None}) for seed in range(NUM_DRAWN)]
    hybrid = [draw(Random(seed), CAN, {"kv_groups": ["full", "window"]}) for seed in range(NUM_DRAWN)]
    assert {config.window for config in with_window} == {3}
    assert {config.kv_groups for config in without} == {("full",), ("full", "full")}
    assert {config.kv_groups for config in hybrid} == {("full", "window")}


def test_a_subject_with_one_group_gets_one() -> None:
    assert {draw(Random(seed), Capabilities(window=True)).kv_groups for seed in range(50)} == {("full",)}


@pytest.mark.parametrize(
    "config",
    [
        Config(kv_groups=("full", "full")),
        Config(kv_groups=()),
        Config(kv_groups=("half",)),
    ],
)
def test_a_subject_is_not_judged_with_groups_that_it_does_not_have(config: Config) -> None:
    with pytest.raises(Unsupported, match="KV groups"):
        ManagerJudge(find("kvproof")(), config)


def test_groups_are_kept_by_name_and_the_scopes_of_a_hunt_with_them() -> None:
    fixed = fixed_fields(["kv_groups=full,window"])
    assert {name for name, scope in HUNTED_SCOPES.items() if agrees(scope.config, fixed)} == {
        "kv-groups-5x2x2",
        "kv-groups-and-cache-6x1x3",
    }
    assert fixed_fields(["kv_groups=full"]) == {"kv_groups": ["full"]}
    with pytest.raises(UsageError, match="kv_groups are of full or window or local"):
        fixed_fields(["kv_groups=full,half"])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("full:a", "a block size is a number of tokens"),
        ("full:0", "a block size is a number of tokens, as in full:16; full:0 was given"),
        ("full,window:3 block_size=4", "least common multiple of the sizes of the KV groups, 4, 3; 4 was given"),
    ],
)
def test_sizes_that_no_block_size_fits_are_refused(groups: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fixed_fields(f"kv_groups={groups}".split())


def test_the_block_size_is_the_least_common_multiple_of_those_of_the_groups() -> None:
    fixed = fixed_fields(["kv_groups=full:6,window:4,state"])
    config = draw(Random(1), HYBRID, fixed | {"caching": True})
    assert (config.block_size, config.block_sizes, config.windows) == (12, (6, 4, 12), (0, config.window, 2))
    assert [layout.leaves_out for layout in config.layouts] == [False, False, True]
    without = draw(Random(1), HYBRID, fixed | {"caching": False})
    assert [layout.is_in_place for layout in without.layouts] == [False, False, True]


def test_blocks_of_different_sizes_and_states_are_drawn_where_a_subject_has_them() -> None:
    drawn = [draw(Random(seed), HYBRID) for seed in range(NUM_DRAWN)]
    sized = [config for config in drawn if len({*config.block_sizes}) > 1]
    states = [config for config in drawn if config.has_states]
    assert min(len(sized), len(states)) > NUM_DRAWN / 20
    assert {len(config.kv_groups) for config in states} == {1, 2, 3, 4}
    assert {config.caching for config in states} == {False, True}
    for config in drawn:
        assert not fault_of_kv_groups(config)
        check_kv_groups(config, HYBRID)


@pytest.mark.parametrize("groups", [("full:2", "full"), ("full", "state")])
def test_a_subject_is_not_judged_with_sizes_or_states_that_it_does_not_have(groups: tuple[str, ...]) -> None:
    with pytest.raises(Unsupported, match=r"different sizes|states"):
        check_kv_groups(Config(kv_groups=groups), CAN)


def test_where_several_groups_are_kept_nothing_is_promised_of_transfers() -> None:
    subject = SimpleNamespace(capabilities=Capabilities(transfers=True, kv_groups=True))
    kept = [Narrowed(subject, {"kv_groups": groups}).capabilities for groups in (["full", "window"], ["full"])]
    assert [(can.transfers, can.kv_groups) for can in kept] == [(False, True), (True, False)]


def test_a_run_of_three_groups_is_tried_with_one_and_with_two() -> None:
    assert list(one_or_fewer_kv_groups(("full", "window", "window"))) == [
        ("full",),
        ("window",),
        ("window",),
        ("window", "window"),
        ("full", "window"),
        ("full", "window"),
    ]
    assert list(one_or_fewer_kv_groups(("full",))) == []
    assert list(one_or_fewer_kv_groups(("full", "state:2"))) == [
        ("full",),
        ("state",),
        ("state:2",),
        ("full",),
        ("full", "state"),
    ]


def test_the_same_tokens_have_other_kv_in_another_group() -> None:
    identities = Identities()
    seq = ExpectedSequence(1, Group(1), Key(), (), identities.root(Key()))
    seq.add_part(identities.root(Key(), 1), 4)
    seq.grow(identities, 7)
    first, second = seq.parts
    assert first.tokens is second.tokens
    assert [identities.describe(part.last) for part in seq.parts] == ["tokens [7]", "tokens [7], KV group 1"]
    assert (first.name, second.name) == ("sequence 1", "sequence 1 in KV group 1")


def test_a_child_has_the_parts_of_its_parent_and_grows_on_its_own() -> None:
    identities = Identities()
    parent = ExpectedSequence(1, Group(1), Key(), (), identities.root(Key()))
    parent.add_part(identities.root(Key(), 1), 4)
    parent.grow(identities, 7)
    child = parent.forked(2)
    child.grow(identities, 8)
    assert [(part.id, part.window, part.identities[0]) for part in child.parts] == [
        (2, part.window, part.identities[0]) for part in parent.parts
    ]
    assert [len(part.identities) for part in (*parent.parts, *child.parts)] == [1, 1, 2, 2]
    assert (parent.tokens, child.tokens) == ([7], [7, 8])
