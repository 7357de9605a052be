"""Start a Ray on this machine, or connect to the Ray of a cluster."""

import logging
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads these when it is imported
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
os.environ.setdefault("RAY_worker_niceness", "0")  # as of workers without Ray

import ray as ray

from kvproof.check.hosts.descendants import MARK, end_marked, marked
from kvproof.check.hosts.program import variable
from kvproof.check.hosts.workers import NUM_TRIES_MAX, NoWorkers

PORT, CONNECT_SECONDS, CONNECT_PAUSE_SECONDS = 10001, 10.0, 3.0  # of the Ray client server
PATIENCE_SECONDS = 60.0  # with a cluster whose port is open: it needs up to 50 s to learn that a node was lost
TIMED_OUT, NO_ANSWER = "timed out during startup", "connection timeout"  # of exceptions without a class of their own
TOKEN, TOKEN_MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_MODE"  # variables: what a Ray asks for, and whether it does
STORE_BYTES = 100_000_000  # of Ray's store of objects on this machine: a result has a few kilobytes
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


def start(ending: ExitStack) -> None:
    """Start Ray here. Everything that it starts has a mark, and what it writes is in a folder that is removed.

    ending: ends it.
    """
    folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="kvproof-ray-", ignore_cleanup_errors=True))
    ending.enter_context(_own_token())
    mark, _ = marked()
    ending.callback(end_marked, mark)
    with variable(MARK, mark):
        _init_slowly(include_dashboard=False, object_store_memory=STORE_BYTES, _temp_dir=folder, **QUIET)


@contextmanager
def _own_token() -> Iterator[None]:
    """Within the block, a Ray that starts has a token of this process; otherwise it writes one to the user's folder.

    Ray also notes in the environment that it asks for a token. Afterwards the environment is as before.
    """
    mode = os.environ.get(TOKEN_MODE)
    try:
        with variable(TOKEN, os.environ.get(TOKEN) or _token()):
            yield
    finally:
        if mode is None:
            os.environ.pop(TOKEN_MODE, None)


@cache
def _token() -> str:
    return secrets.token_hex()  # Ray reads it once in a process


def _init_slowly(**options: Any) -> None:
    """Start Ray here. On a busy machine it gives up after half a minute, and is started again."""
    for num_tries in range(1, NUM_TRIES_MAX + 1):
        try:
            ray.init("local", **options)
            return
        except Exception as error:
            ray.shutdown()
            if num_tries == NUM_TRIES_MAX or TIMED_OUT not in str(error):
                raise


def connect(address: str) -> None:
    """Connect to a cluster. Raises NoWorkers.

    If its port is open, the cluster is asked again: it may be busy, or may have lost a node and not know that yet.
    """
    place = urlsplit(address)
    try:
        socket.create_connection((place.hostname or "", place.port or PORT), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise NoWorkers(f"no Ray answers at {address}: {error}") from error
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            ray.init(address=address, **QUIET)
            return
        except (ConnectionError, TimeoutError) as error:
            ray.shutdown()
            if time.monotonic() >= deadline:
                raise NoWorkers(f"no Ray answers at {address}: {reason_of(error)}") from error
            time.sleep(CONNECT_PAUSE_SECONDS)


def reason_of(error: Exception) -> str:
    """The last line of the error of a connection, and what may help. Ray sends a token only if it is asked to."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    if NO_ANSWER in reason and os.environ.get(TOKEN_MODE, "").lower() != "token":
        reason += f"; if it asks for a token, set {TOKEN_MODE}=token, and {TOKEN} if the token is in no file"
    return reason
