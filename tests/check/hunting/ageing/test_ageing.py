"""`kvproof engines check`: a newer release beside the one that a subject was judged with, as one page."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app
from kvproof.check.hosts.program import Finished
from kvproof.check.hunting.ageing.differences import changed_defaults, functions_that_ran
from kvproof.check.hunting.gate import replayed
from kvproof.check.runs.replay import replay
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading import EngineError, newest
from kvproof.check.subjects.registry import NAMED
from kvproof.reports.result import CodeFile, PartlyRun, SubjectCode
from kvproof.spec.verdict import Exit

NAME, OLD, NEW = "vllm-v1", "77.0.0", "77.1.0"
FILE = "vllm/v1/core/kv_cache_manager.py"
CONFIG = "class CacheConfig:\n    block_size: int = {}\n    sliding: bool = Field(default={}, ge=0)\n"


class Forgets(BuiltIn):
    """The built-in manager, which gives up nothing when a sequence ends."""

    def release(self, seq: int) -> None:
        return None


def cannot_be_driven() -> None:
    """What makes the subject of a release that has other modules."""
    raise UnknownSubject("this release has no such module")


def releases(cache: Path, **texts: str) -> None:
    """Two releases; the older one has `old`, the newer one `new`."""
    for version, text in ((OLD, texts.get("old", "")), (NEW, texts.get("new", ""))):
        file = cache / f"vllm-{version}" / FILE
        file.parent.mkdir(parents=True)
        file.write_text(text)
        config = cache / f"vllm-{version}" / "vllm" / "config" / "cache.py"
        config.parent.mkdir()
        config.write_text(CONFIG.format(16, "None" if version == OLD else "True"))


@pytest.fixture
def made(quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Any]]:
    """What the subject is in each release; hunts are done in this process, in few scopes."""
    by_release: dict[str, Callable[[], Any]] = {OLD: BuiltIn, NEW: BuiltIn}
    row = replace(NAMED[NAME], releases=("0.6.5", OLD), make=lambda release: by_release[release]())
    monkeypatch.setitem(NAMED, NAME, row)
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(replayed, "replay", partial(replay, isolation=False))
    return by_release


def offered(monkeypatch: pytest.MonkeyPatch, output: str, code: int = 0) -> None:
    monkeypatch.setattr(newest, "finished", lambda *_, **__: Finished(code, output, ""))


def check(*words: str) -> Result:
    return CliRunner().invoke(app, ["engines", "check", *words, "--effort", "300"])


def page() -> str:
    return Path(".kvproof/ageing/ageing.md").read_text()


def test_a_finding_of_the_newer_release_is_added(
    made: dict[str, Callable[[], Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases(tmp_path / "cache")
    made[NEW] = Forgets
    offered(monkeypatch, f"vllm ({NEW})\nAvailable versions: {NEW}, {OLD}\n")
    done = check(NAME)
    assert done.exit_code == Exit.WORSE_THAN_BASELINE, done.output
    assert f"{NAME}=={NEW} adds 2 findings to {NAME}=={OLD}; it repairs 0 and leaves 0." in done.output
    assert f"| `{NAME}` | {OLD}, {NEW} | 2 | 0 |" in page()
    assert "<details open>" in page()
    assert "- CacheConfig.sliding: None before, True now" in page()


def test_a_finding_of_the_older_release_alone_is_repaired(made: dict[str, Callable[[], Any]], tmp_path: Path) -> None:
    releases(tmp_path / "cache")
    made[OLD] = Forgets
    done = check(NAME, "--from", OLD, "--to", NEW)
    assert done.exit_code == Exit.INCONCLUSIVE, done.output  # so few operations do not reach everything
    assert "it repairs 2 and leaves 0" in done.output
    assert f"| `{NAME}` | {OLD}, {NEW} | 0 | 2 |" in page()


def test_a_release_that_cannot_be_driven_is_worse(made: dict[str, Callable[[], Any]], tmp_path: Path) -> None:
    releases(tmp_path / "cache")

    made[NEW] = cannot_be_driven
    done = check(NAME, "--to", NEW)
    assert done.exit_code == Exit.WORSE_THAN_BASELINE, done.output
    assert f"| `{NAME}` | {OLD}, {NEW} | cannot be judged |" in page()
    assert f"the hunt of {NAME}=={NEW} ended with exit code 2" in page()


def test_an_older_release_that_cannot_be_driven_is_no_difference(
    made: dict[str, Callable[[], Any]], tmp_path: Path
) -> None:
    releases(tmp_path / "cache")

    made[OLD] = cannot_be_driven
    done = check(NAME, "--to", NEW)
    assert done.exit_code == Exit.USAGE, done.output
    assert not Path(".kvproof/ageing/ageing.md").exists()


def test_nothing_is_hunted_where_the_newest_release_was_judged(
    made: dict[str, Callable[[], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(monkeypatch, f"vllm ({OLD})\n")
    done = check(NAME)
    assert done.exit_code == Exit.OK
    assert done.output == f"{NAME} was judged with {OLD}, and {OLD} is the newest release that is offered.\n"
    assert not Path(".kvproof").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vllm-v2"], "vllm-v2 names no subject of an engine with releases"),
        ([f"{NAME}=={NEW}"], f"{NAME}=={NEW} names no subject of an engine with releases"),
        (["--to", NEW], "--from and --to name releases of one engine; name one subject with them"),
        ([NAME, "--to", "no release"], "'vllm==no release' is no release"),
    ],
)
@pytest.mark.usefixtures("made")
def test_wrong_words_are_refused(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = check(*words)
    assert done.exit_code == Exit.USAGE
    assert message in " ".join((done.output + capfd.readouterr().err).split())


def test_an_index_that_does_not_answer_is_an_error_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "ERROR: No matching distribution found for vllm", 1)
    with pytest.raises(EngineError, match="the package index offers no vllm for this Python"):
        newest.newest_release("vllm")
    offered(monkeypatch, "WARNING: pip index is experimental\nvllm (0.33.0)\nAvailable versions: 0.33.0\n")
    assert newest.newest_release("vllm") == "0.33.0"


def test_functions_that_ran_and_differ_are_named_and_others_are_not(tmp_path: Path) -> None:
    methods = "    def take(self):\n        return {}\n\n    def give(self):\n        return {}\n"
    text = f"class Pool:\n{methods}\n\ndef idle():\n    return {{}}\n"
    releases(tmp_path, old=text.format(1, 1, 1), new=text.format(2, 1, 2))
    code = SubjectCode(10, "", [CodeFile(FILE, 3, 2, partly=[PartlyRun("idle", 9, [10], is_entered=False)])])
    folders = [tmp_path / f"vllm-{version}" for version in (OLD, NEW)]
    assert [*functions_that_ran(code, *folders)] == [f"Pool.take ({FILE}:2)"]
    (folders[1] / FILE).unlink()
    assert [*functions_that_ran(code, *folders)] != []


def test_defaults_that_are_new_or_gone_are_named(tmp_path: Path) -> None:
    for name, text in (
        ("a", "class C:\n    x: int = 1\n    y: int\n"),
        ("b", "class C:\n    y: int\n    z: str = 's'\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.py").write_text(text)
    assert [*changed_defaults(["*.py"], tmp_path / "a", tmp_path / "b")] == [
        "C.x is gone (it was 1)",
        "C.z is new: 's'",
    ]
