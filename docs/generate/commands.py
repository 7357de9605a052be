"""The commands that a document shows, run in their order; the outputs that it shows, compared with what they print.

A block of code whose fence names a file, such as ```python title="adapter.py", is written to the folder of the
document. In a block that begins with `$ `, each line that begins so is a command for bash, and the lines below it are
its output: a line of … stands for any lines, and a … at the end of the last line for the rest of it.

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

TREE = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.M | re.S)
LEFT_OUT = "…"  # a line of it, or the end of a line
SECONDS_MAX = 600


class Command(NamedTuple):
    """A command and the output that the document shows of it; or a file, if path is not empty, and its text."""

    command: str
    output: str
    path: str = ""


def commands(document: str) -> Iterator[Command]:
    """The files and commands of a document, in their order."""
    for fence in FENCE.finditer(document):
        if fence["title"]:
            yield Command("", fence["text"], fence["title"])
        elif fence["text"].startswith("$ "):
            for part in re.split(r"^\$ ", fence["text"], flags=re.M)[1:]:
                command, _, output = part.partition("\n")
                yield Command(command, output)


def shows(output: str, printed: str) -> bool:
    """Whether what was printed is the output that a document shows."""
    rest = printed
    whole = LEFT_OUT not in output
    for part in re.split(rf"^{LEFT_OUT}$", output, flags=re.M):
        text = part.strip("\n").removesuffix(LEFT_OUT)
        place = rest.find(text)
        if place < 0:
            return False
        rest = rest[place + len(text) :]
    return not whole or output.strip() == printed.strip()


def differences(document: str, folder: Path, environment: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Run a document in a folder. Yields each command that prints something else, with what it prints."""
    code = 0
    shutil.copytree(TREE / "examples", folder / "examples", dirs_exist_ok=True)
    for one in commands(document):
        if one.path:
            (folder / one.path).write_text(one.output, encoding="utf-8")
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
        if not shows(one.output, done.stdout):
            yield one.command, done.stdout


def environment() -> dict[str, str]:
    """That of this process, with the programs of its Python first, and without colours."""
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "120"}


if __name__ == "__main__":
    for page in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            for command, printed in differences(Path(page).read_text(encoding="utf-8"), Path(scratch), environment()):
                print(f"{page}: $ {command}\n{printed}")
