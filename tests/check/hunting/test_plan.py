"""The file of a campaign: what it means, and the line of each key that is wrong."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from kvproof.check.hunting.plan import read_plan, schema_text
from kvproof.reports.document import DocumentError

GOOD = """
out = "results"

[limits]
units = 7

[[search]]
subjects = ["own.py:Adapter"]
seeds = [1, 2]

[[search]]
subjects = ["vllm-v0"]
releases = ["0.4.2", "0.5.4"]
fix = [{ caching = true }, {}]
seeds = [3]
efforts = ["quick", 9000]
priority = 1
"""


def written(folder: Path, text: str) -> Path:
    (folder / "own.py").touch()
    (folder / "campaign.toml").write_text(text)
    return folder / "campaign.toml"


def test_a_plan_has_one_search_for_each_combination_and_the_urgent_ones_first(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, GOOD + '\n[[search]]\nsubjects = ["vllm-v0==0.4.2"]\nseeds = [3]\npriority = 1'))
    found = [(one.subject, one.fixed, one.seed, one.effort, one.operations) for one in plan.searches]
    releases: list[Any] = [
        (f"vllm-v0=={release}", fixed, 3, *effort)
        for release in ("0.4.2", "0.5.4")
        for fixed in ({"caching": True}, {})
        for effort in (("quick", 50_000), ("9000", 9_000))
    ]
    own = f"{tmp_path / 'own.py'}:Adapter"
    assert found == [*releases, (own, {}, 1, "quick", 50_000), (own, {}, 2, "quick", 50_000)]
    assert (plan.folder, plan.units_max, plan.seconds) == (tmp_path / "results", 7, None)


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        ("units = 7", "units = 0", 5, "limits.units: Expected `int` >= 1"),
        (
            "units = 7",
            "unit = 7",
            5,
            "there is no key 'limits.unit' (did you mean units?); the keys are units",
        ),
        ("seeds = [3]", "seeds = [-3]", 15, "search.seeds: Expected `int` >= 0"),
        ("seeds = [3]", "", 11, "search: Object missing required field `seeds`"),
        ("seeds = [3]", "seed = 3", 15, "there is no key 'search.seed' (did you mean seeds?); the keys are subjects"),
        ('"quick", 9000', '"quack"', 16, "an effort is quick, normal, long or a number of operations from 1 to"),
        ("caching = true", "cache = true", 14, "fix: a configuration has no field 'cache'"),
        ('out = "results"', "out = 3", 2, "out: Expected `str`, got `int`"),
    ],
)
def test_a_wrong_key_is_named_with_its_line(tmp_path: Path, before: str, after: str, line: int, message: str) -> None:
    path = written(tmp_path, GOOD.replace(before, after))
    with pytest.raises(DocumentError) as error:
        read_plan(path)
    assert str(error.value).startswith(f"{path}:{line}: {message}")


def test_the_schema_accepts_the_file_and_refuses_an_unknown_key() -> None:
    validator = Draft202012Validator(json.loads(schema_text()))
    assert list(validator.iter_errors(tomllib.loads(GOOD))) == []
    assert list(validator.iter_errors(tomllib.loads(GOOD.replace("units", "unit")))) != []


def test_a_key_of_many_parts_is_refused_before_it_is_read_and_a_long_list_of_releases_is_not(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("# one\n" + "a." * 30_000 + "b = 1\n")
    with pytest.raises(DocumentError, match=r"plan\.toml:2: there are too many dots for the keys of TOML"):
        read_plan(path)
    releases = [f"0.{number}.0" for number in range(400)]
    path.write_text(
        f'[[search]]\nsubjects = ["vllm-v0"]\nseeds = [1]\nefforts = [9]\nreleases = {json.dumps(releases)}\n'
    )
    assert len(read_plan(path).searches) == 400
