"""A variable of the environment that is set has an effect, or is refused."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.cli.config import OURS, VARIABLES
from kvproof.check.subjects.loading import download
from kvproof.spec.verdict import Exit

TREE = Path(__file__).parents[3]
ROOTS = ("spec", "impl", "models", "reports", "check", "benchmarks", "tests/check/subjects")
ELSEWHERE = {"KVPROOF_COMPLETE"}  # of typer, which puts another character before it


def test_the_variables_that_kvproof_reads_are_those_that_it_knows() -> None:
    texts = [file.read_text() for root in ROOTS for file in (TREE / root).rglob("*.py") if file.name != "config.py"]
    found = {name for text in texts for name in re.findall(r"KVPROOF_[A-Z_]+", text)}
    assert found - ELSEWHERE == VARIABLES.keys() | set(OURS)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("KVPROOF_CASHE", "/engines", "kvproof reads no variable KVPROOF_CASHE (did you mean KVPROOF_CACHE?)"),
        ("KVPROOF_SEED", "7", "kvproof reads no variable KVPROOF_SEED"),
        ("KVPROOF_DIGEST_KEY", "", "it is a key; an empty one would store tokens as they are, or unset"),
        ("KVPROOF_ANY_TORCH", "no", "the variable KVPROOF_ANY_TORCH is 'no'; it is 1, or unset"),
        ("KVPROOF_URL", "ours", "the variable KVPROOF_URL is 'ours'; it is an address"),
        ("XDG_CACHE_HOME", "cache", "the variable XDG_CACHE_HOME is 'cache', a relative path, which has no effect"),
    ],
)
def test_a_variable_that_would_have_no_effect_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    assert CliRunner().invoke(app, ["subjects"]).exit_code == Exit.OK
    monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["subjects"])
    assert (done.exit_code, said in done.output) == (Exit.USAGE, True), done.output


def test_a_release_in_the_folder_of_all_caches_is_the_one_that_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(download.CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert download.default_cache() == tmp_path / "kvproof" / "engines"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download.default_cache() == tmp_path / ".cache" / "kvproof" / "engines"
    monkeypatch.setenv(download.CACHE, str(tmp_path / "mine"))
    assert download.default_cache() == tmp_path / "mine"
