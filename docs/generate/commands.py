"""The commands that a document shows, run in their order; the outputs that it shows, compared with what they print.

A block of code whose fence names a file, such as ```python title="adapter.py", is written to the folder of the
document. In a block that begins with `$ `, each line that begins so is a command for bash, and the lines below it are
its output: a … stands for any text, on a line of its own for any lines. Each line of a ```sh block, and each indented
line that begins with `kvproof`, is a command without an output; it must end with exit code 0 or 1. A block that is a
part of a file is run inside the rest of that file (`FRAMES` of `prepared`). A block that is none of these is not run,
and `BLOCKS_NOT_RUN` has the reason.

`python -m docs.generate.commands PAGE…` runs documents, and prints for each difference what was printed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.generate.prepared import BLOCKS_NOT_RUN, ENGINES, FRAMES, NOT_RUN, PREPARED, Frame

TREE = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$"
    r"|(?P<indented>(?:^    kvproof [^\n]*\n)+)",
    re.M | re.S,
)
FENCED = re.compile(r"^ *```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^ *```$", re.M | re.S)
SCRIPT = "sh"  # the language of a block of commands without outputs
LEFT_OUT = "…"
SECONDS_MAX = 1_800


class Command(NamedTuple):
    """A command and the output that the document shows of it; or a file, if path is not empty, and its text."""

    command: str
    output: str | None  # None: the document shows none
    path: str = ""


def commands(page: str, document: str) -> Iterator[Command]:
    """The files and commands of a page, in their order. page: relative to docs/."""
    for block in BLOCK.finditer(document):
        if frame := frame_of(page, block["text"]):
            yield Command("", frame.before + block["text"] + frame.after, frame.path)
            yield Command(frame.command, None)
        elif block["title"]:
            yield Command("", block["text"], block["title"])
        elif block["indented"] or block["language"] == SCRIPT:
            for line in (block["indented"] or block["text"]).replace("\\\n", "").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield Command(" ".join(line.split()), None)
        elif block["text"].startswith("$ "):
            for part in re.split(r"^\$ ", block["text"], flags=re.M)[1:]:
                command, _, output = part.partition("\n")
                yield Command(command, output)


def frame_of(page: str, text: str | None) -> Frame | None:
    """The rest of the file that a block is a part of; None if it is no part of one."""
    return next((one for begin, one in FRAMES.get(page, {}).items() if text and text.startswith(begin)), None)


def blocks_without_reason(page: str, document: str) -> list[str]:
    """The first lines of the blocks that are not run and for which `BLOCKS_NOT_RUN` has no reason."""
    reasons = tuple(BLOCKS_NOT_RUN.get(page, {}))
    return [
        text.partition("\n")[0]
        for language, title, text in FENCED.findall(document)
        if not (
            title or language == SCRIPT or text.startswith("$ ") or frame_of(page, text) or text.startswith(reasons)
        )
    ]


def shows(output: str, printed: str) -> bool:
    """Whether what was printed is the output that a document shows."""
    text = re.sub(rf"^ *{LEFT_OUT}\n", LEFT_OUT, f"{output.strip()}\n", flags=re.M)
    return re.fullmatch(".*".join(map(re.escape, text.split(LEFT_OUT))), f"{printed.strip()}\n", re.S) is not None


def reason_not_to_run(page: str, command: str) -> str:
    """Why a command of a page is not run; empty if it is. page: relative to docs/."""
    return next((why for begin, why in NOT_RUN.get(page, {}).items() if command.startswith(begin)), "")


def needs_an_engine(command: str) -> bool:
    """Whether a command downloads or judges a release of an engine."""
    return any(name in command for name in ENGINES)


def differences(
    page: str, document: str, folder: Path, environment: dict[str, str], engines: bool = False
) -> Iterator[tuple[str, str]]:
    """Run a document in a folder: the commands that need an engine, or the others.

    Yields each command that prints something else than the document shows, with what it prints.
    """
    code = 0
    shutil.copytree(TREE / "examples", folder / "examples", dirs_exist_ok=True)
    subprocess.run(["bash", "-ec", PREPARED.get(page, "")], cwd=folder, env=environment, check=True)
    for one in commands(page, document):
        if one.path:
            (folder / one.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / one.path).write_text(one.output or "", encoding="utf-8")
            continue
        if reason_not_to_run(page, one.command) or needs_an_engine(one.command) is not engines:
            continue
        done = subprocess.run(
            ["bash", "-c", f"(exit {code}); {one.command}"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        code = done.returncode
        if (one.output is None and code not in (0, 1)) or (
            one.output is not None and not shows(one.output, done.stdout)
        ):
            yield one.command, done.stdout


def environment() -> dict[str, str]:
    """That of this process, with the programs of its Python first, and without colours."""
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "120"}


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        name = Path(os.path.relpath(path, TREE / "docs")).as_posix()
        with tempfile.TemporaryDirectory() as scratch:
            text = path.read_text(encoding="utf-8")
            for command, printed in differences(name, text, Path(scratch), environment()):
                print(f"{path}: $ {command}\n{printed}")
