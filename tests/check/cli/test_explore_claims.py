"""What an exploration of the specification asked of every state is in its result, and so is what it left out."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.spec.systems import BLOCK_MANAGERS

TINY = ("--blocks", "2", "--seqs", "2", "--tokens", "2")
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def claims_about(property: str) -> list[str]:
    collected = BLOCK_MANAGERS.collected
    return [claim.name for claim in collected.invariants + collected.theorems if claim.property == property]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def explored(*words: str) -> tuple[list[dict[str, Any]], str]:
    """The checks of an exploration that fails nothing, and what it prints."""
    done = CliRunner().invoke(app, ["explore", *TINY, *words])
    assert done.exit_code == 0, done.output
    checks = json.loads(Path(".kvproof", "result.json").read_text())["checks"]
    return [check for check in checks if check["verdict"] != "unsupported"], done.output


@pytest.mark.parametrize(
    "words",
    [
        ("--scope", "tables-4x3x6"),
        ("--scope", "rules-tables"),
        ("--scope", "tables-4x3x6", "--workers", "2"),
        pytest.param(("--scope", "tables-6x4x8", "--reader", "c"), marks=NEEDS_COMPILER),
        pytest.param(("--scope", "rules-tables", "--reader", "c"), marks=NEEDS_COMPILER),
    ],
)
def test_a_property_is_exhausted_if_every_claim_about_it_was_asked(words: tuple[str, ...]) -> None:
    checks, output = explored(*words)
    assert {check["verdict"] for check in checks} == {"exhausted"}
    for check in checks:
        assert check["claims"] == claims_about(check["property"])
        assert not check["claims_left_out"]
    num_asked = len({claim for check in checks for claim in check["claims"]})
    assert f"evaluated {num_asked} claims about " in output
    assert "claims: specification" in Path(".kvproof", "report.txt").read_text()


def test_a_property_with_a_claim_that_was_left_out_is_at_most_not_refuted() -> None:
    checks, output = explored("--scope", "tables-6x4x8")
    for check in checks:
        about = claims_about(check["property"])
        assert (check["claims"], check["claims_left_out"]) == ([], about)
        assert check["verdict"] == ("not refuted" if about else "exhausted"), check["property"]
    assert {check["verdict"] for check in checks} == {"not refuted", "exhausted"}
    assert "specification left out " in output
    assert "these properties are at most not refuted there" in output
    assert "Claims of the specification about " in Path(".kvproof", "index.html").read_text()
