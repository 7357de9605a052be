"""The child process of `isolation`: maps the pools, prepares the executor, and executes the requested steps.

It is started as a module, with the name of the executor and two file descriptors: one for requests, one for answers.
Each is one JSON document per line. The output of the executor is discarded.
"""

import json
import os
import sys
import threading
import time
from typing import Any

import torch

from kvproof.check.data_plane.executors.base import MoveBlocks, own_executor
from kvproof.check.data_plane.executors.isolation import mapped
from kvproof.check.data_plane.memory.layouts import Geometry, Layout, UnknownSetting
from kvproof.check.data_plane.memory.world import Arena, caches_of
from kvproof.check.data_plane.steps.moves import Moves, PoolId
from kvproof.check.protocol.finding import error_text


def prepare(name: str, sizes: dict[str, Any], memory: list[int]) -> MoveBlocks:
    """Prepare the executor for a case. sizes: the fields of the Geometry. memory: the descriptors of both pools."""
    geometry = Geometry(**{**sizes, "layout": Layout(sizes["layout"])})
    here = torch.device("cpu")
    arenas = {
        pool: Arena(geometry, pool, here, mapped(descriptor, geometry, pool))
        for pool, descriptor in zip(PoolId, memory, strict=True)
    }
    return own_executor(name).prepare(caches_of(arenas))


_LASTING: set[threading.Thread] = set()


def rest(seconds_max: float) -> int:
    """Wait at most seconds_max for all other threads to end. Returns how many there were.

    A thread that has not ended in that time, such as a permanent worker, is not waited for again.
    """
    others = [one for one in threading.enumerate() if one is not threading.current_thread() and one not in _LASTING]
    deadline = time.monotonic() + seconds_max
    for one in others:
        one.join(max(0.0, deadline - time.monotonic()))
    _LASTING.update(one for one in others if one.is_alive())
    return len(others)


def main(name: str, requests: int, answers: int) -> None:
    """Answer requests until the parent closes the pipe."""
    torch.set_num_threads(1)
    move: MoveBlocks | None = None
    for line in os.fdopen(requests, "rb"):
        request = json.loads(line)
        answer: dict[str, object] = {}
        try:
            if "open" in request:
                move = prepare(name, request["open"], request["memory"])
            elif "rest" in request:
                answer["threads"] = rest(request["rest"])
            elif move is not None:
                moves = Moves(**{name: tuple(map(tuple, pairs)) for name, pairs in request["move"].items()})
                began = time.perf_counter()
                move(moves)
                answer["seconds"] = time.perf_counter() - began
        except Exception as error:
            is_import = isinstance(error, UnknownSetting) and "open" in request
            text = error_text(error)
            answer = {"unknown": text} if is_import else {"raised": f"{type(error).__name__}: {text}"}
        os.write(answers, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
