"""Whether a function of one's own can be had, without importing it here."""

from __future__ import annotations

import os
import subprocess
import sys

from kvproof.check.data_plane.executors.isolation import START_SECONDS_MAX, child_environment, how_it_ended
from kvproof.check.data_plane.memory.layouts import UnknownSetting

_PROBE = "kvproof.check.data_plane.executors.probe_process"


def require_function(name: str, seconds_max: float = START_SECONDS_MAX) -> None:
    """Raises UnknownSetting with a message for the user if there is no such function, or importing it goes wrong."""
    here, there = os.pipe()
    with (
        os.fdopen(here, "rb") as answer,
        subprocess.Popen(
            [sys.executable, "-m", _PROBE, name, str(there)],
            pass_fds=(there,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            start_new_session=True,
        ) as process,
    ):
        os.close(there)
        try:
            code = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            raise UnknownSetting(f"{name}: importing it was not over within {seconds_max:g} s") from None
        reason = answer.read().decode(errors="replace")
    if reason:
        raise UnknownSetting(reason)
    if code:
        raise UnknownSetting(f"{name}: the process that imported it {how_it_ended(code)}")
