"""What a gate runs where a state is: a hunt, and replays, each in a process of its own that finds the state's code."""

import os
from contextlib import ExitStack
from pathlib import Path

import msgspec

from kvproof.check.hosts.program import SAME, Streams, how_it_ended, module, started
from kvproof.check.hosts.supervised_command import signals_passed_on
from kvproof.check.hunting.gate.replayed import Replayed
from kvproof.check.hunting.gate.sides import Hunted
from kvproof.check.runs.errors import UsageError

KVPROOF, REPLAY = "kvproof.check.cli.app", "kvproof.check.hunting.gate.replayed"
SAID_AGAIN, REPLAYED = "replay.txt", "replayed.json"


def hunt(how: Hunted, words: list[str], said: Path | None) -> int:
    """The exit code of a hunt. said: the file to which its output goes; None for that of this process."""
    return _run(how, KVPROOF, ["hunt", "--subject", how.subject, *words], said)


def replayed(how: Hunted, traces: list[Path], folder: Path) -> list[Replayed]:
    """What becomes of each saved run in a state. folder: for what is printed. Raises UsageError."""
    if not traces:
        return []
    out = folder / REPLAYED
    code = _run(how, REPLAY, [str(out), how.subject, *map(str, traces)], folder / SAID_AGAIN)
    if code:
        raise UsageError(f"the replay of what was found {how_it_ended(code)}: {last_words(folder / SAID_AGAIN)}")
    return msgspec.json.decode(out.read_bytes(), type=list[Replayed])


def _run(how: Hunted, name: str, words: list[str], said: Path | None) -> int:
    """The exit code of a module of kvproof that runs where a side is."""
    environment, command = {**os.environ, "PYTHONPATH": how.path}, module(name, *words)
    with ExitStack() as ending:
        streams: Streams = (SAME, SAME, SAME)
        if said is not None:
            file = ending.enter_context(said.open("wb")).fileno()
            streams = SAME, file, file
        process = started(command, streams, environment=environment, is_in_own_session=True, folder=how.folder)
        with signals_passed_on(lambda: process.pid) as signals:
            code = process.wait()
    if signals:
        raise KeyboardInterrupt
    return code


def last_words(file: Path) -> str:
    """The last line of a file."""
    text = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return text[-1] if text else "it printed nothing"
