"""One row describes a configuration feature; drawing, shrinking, suppression, `--fix` and adapters follow it."""

from dataclasses import dataclass, fields, replace
from random import Random

import pytest

from kvproof.check.oracle.level import settings_of
from kvproof.check.protocol import features
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.features import FEATURES, Feature, missing, sizes_assumed
from kvproof.check.protocol.manager import Config, PromptKeys, Unsupported
from kvproof.check.protocol.manager_adapter import ManagerAdapter
from kvproof.check.runs.arguments import Narrowed
from kvproof.check.search import configurations, suppression
from kvproof.check.subjects.builtin.manager import BuiltIn


def test_every_optional_field_of_a_configuration_has_a_row() -> None:
    rows = [feature.field for feature in FEATURES] + [size.field for size in features.SIZES]
    assert sorted(rows) == sorted(field.name for field in fields(Config))
    assert {feature.capability for feature in FEATURES} <= {field.name for field in fields(Capabilities)}


def test_no_feature_is_on_by_default() -> None:
    assert [feature.field for feature in FEATURES if feature.is_on(Config())] == []


def test_a_missing_feature_is_named_by_its_phrase() -> None:
    config = Config(caching=True, keys=PromptKeys.ADAPTERS, window=3, kv_groups=("full", "window"))
    assert features.missing(config, Capabilities(window=True)) == ["prefix cache", "adapters", "several KV groups"]


@dataclass(frozen=True)
class WithPaging(Config):
    """A configuration with one more field."""

    paging: int = 0


PAGING = Feature(
    "paging",
    lambda config: range(config.paging),
    phrase="paging",
    capability="reset",  # any capability will do here
    draw=lambda random, drawn, fixed: random.choice((0, 7)),
)


def test_a_row_is_all_that_a_new_feature_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "FEATURES", (*FEATURES, PAGING))
    monkeypatch.setattr(configurations, "Config", WithPaging)
    monkeypatch.setattr(features, "DEFAULTS", features.DEFAULTS | {"paging": 0})
    in_order = features.in_config_order.__wrapped__  # it is remembered, as the table is constant
    for module in (features, configurations):
        monkeypatch.setattr(module, "in_config_order", in_order)
    config = WithPaging(paging=3)

    drawn = [configurations.draw(Random(seed), Capabilities(reset=True)) for seed in range(40)]
    assert {getattr(one, "paging") for one in drawn} == {0, 7}  # noqa: B009
    unable = [configurations.draw(Random(seed), Capabilities()) for seed in range(40)]
    assert {getattr(one, "paging") for one in unable} == {0}  # noqa: B009

    paging = settings_of(config)[len(FEATURES)]
    assert (paging.field, list(paging.simpler(config))) == ("paging", [0, 1, 2])
    assert suppression.features_of(config, []) == ("paging",)
    assert suppression.plain({}, frozenset({"paging"})) == {"paging": 0}
    assert not Narrowed(BuiltIn(), {"paging": 0}).capabilities.reset
    assert features.missing(config, Capabilities()) == ["paging"]
    assert features.missing(replace(config, paging=0), Capabilities()) == []


class HasNothing(ManagerAdapter):
    """An adapter of a manager without capabilities, which is never made."""

    name = "nothing"
    capabilities = Capabilities(has_admission_query=False)

    def _require_complete(self) -> None:
        pass


def test_an_adapter_refuses_a_configuration_whose_features_it_does_not_have() -> None:
    with pytest.raises(Unsupported, match=r"^nothing has no swapping, no prefix cache$"):
        HasNothing().open(Config(caching=True, num_host_blocks=2))


def test_a_drawn_hash_seed_leaves_the_other_features_as_they_are() -> None:
    can = Capabilities(caching=True, window=True, chunked=True)
    seeds = set()
    for number in range(60):
        config = configurations.draw(Random(number), replace(can, hash_seeds=True))
        assert replace(config, hash_seed=0) == configurations.draw(Random(number), can)
        seeds.add(min(config.hash_seed, 3))
    assert seeds == {0, 1, 2, 3}


def test_a_block_is_drawn_no_smaller_and_no_larger_than_a_subject_can_have_it() -> None:
    can = Capabilities(block_size_min=2, block_size_max=16)
    sizes = {configurations.draw(Random(number), can).block_size for number in range(200)}
    assert (min(sizes), max(sizes)) == (2, 16)
    assert missing(Config(block_size=1), can) == ["blocks of 1 slot"]
    assert missing(Config(block_size=32), can) == ["blocks of 32 slots"]
    assert [one.sentence for one in sizes_assumed(can)] == ["A block has at least 2 and at most 16 slots."]
    assert sizes_assumed(Capabilities()) == ()
