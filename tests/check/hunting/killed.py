"""A run that is killed while it keeps its results."""

from typing import Any

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.hunting.store import ResultStore
from kvproof.check.runs.session import Session


class Killed(BaseException):
    """It stands for the signal."""


def killed_after(num_results: int, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `kvproof` with these arguments until so many results are kept."""
    add, num_added = ResultStore.add, 0

    def until_killed(*given: Any) -> None:
        nonlocal num_added
        num_added += 1
        if num_added > num_results:
            raise Killed
        add(*given)

    with monkeypatch.context() as patch:
        patch.setattr(ResultStore, "add", until_killed)
        patch.setattr(Session, "_report_fault", lambda self, stage, error: (_ for _ in ()).throw(error))
        with pytest.raises(Killed):
            CliRunner().invoke(app, arguments, catch_exceptions=False)
