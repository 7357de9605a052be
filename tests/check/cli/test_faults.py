"""`kvproof faults` where there is no checkout: one sentence instead of the command."""

import sys
from collections.abc import Callable

import pytest
from typer import Typer
from typer.testing import CliRunner

from kvproof.audit.cli import faults as of_a_checkout
from kvproof.check.cli.config import ANY_ARGUMENTS
from kvproof.check.cli.faults import NEEDS_A_CHECKOUT, faults_command
from kvproof.spec.verdict import Exit


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The command as an installed wheel has it."""
    monkeypatch.setitem(sys.modules, "kvproof.audit", None)
    return faults_command()


def test_a_checkout_has_the_command_itself() -> None:
    assert faults_command() is of_a_checkout.faults


@pytest.mark.parametrize("arguments", [[], ["--of", "impl", "--only", "kvproof/*"], ["--resume", "x"]])
def test_an_installed_wheel_says_that_the_command_needs_a_checkout(
    installed: Callable[..., None], arguments: list[str]
) -> None:
    app = Typer()
    app.command(context_settings=ANY_ARGUMENTS)(installed)
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stderr) == (Exit.USAGE, f"kvproof: {NEEDS_A_CHECKOUT}\n")
