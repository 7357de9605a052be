"""Check whether a user's function can be imported, without importing it into this process."""

import os
import subprocess
import sys

from kvproof.check.data_plane.executors.isolation import START_SECONDS_MAX, child_environment, how_it_ended
from kvproof.check.data_plane.memory.layouts import UnknownSetting

_PROBE = "kvproof.check.data_plane.executors.probe_process"


def require_function(name: str, seconds_max: float = START_SECONDS_MAX) -> None:
    """Raise UnknownSetting, with a message for the user, if the function does not exist or cannot be imported.

    seconds_max: the time limit of the import.
    """
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
            raise UnknownSetting(f"{name}: the import did not end within {seconds_max:g} s") from None
        reason = answer.read().decode(errors="replace")
    if reason:
        raise UnknownSetting(reason)
    if code:
        raise UnknownSetting(f"{name}: the process that imported it {how_it_ended(code)}")
