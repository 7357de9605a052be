"""Pytest plugin of `make peers`: chooses the block manager under test, and writes a JSON line per test.

`KVPROOF_PEERS_SUBJECT` is "vllm" or "kvproof"; the lines go to the file `KVPROOF_PEERS_RESULTS`.
"""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvproof.check.subjects.vllm import peer_modules

# Two modules that import a whole engine. Only the tests that need a model use them, and those are not run.
NOT_NEEDED = {"vllm.engine.arg_utils": "EngineArgs", "vllm.engine.llm_engine": "LLMEngine"}


def pytest_configure(config: pytest.Config) -> None:
    for name, word in NOT_NEEDED.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__[word] = object
    if os.environ["KVPROOF_PEERS_SUBJECT"] == "kvproof":
        peer_modules.install()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.passed:
        return
    line = {"test": report.nodeid, "outcome": report.outcome, "why": _last_line(report)}
    with Path(os.environ["KVPROOF_PEERS_RESULTS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _last_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message).partition("\n")[0] if crash is not None else ""
