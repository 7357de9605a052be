"""The packages that a machine without a network lacks, as wheels: fetched with hashes, compared, and unpacked.

The packages are those that kvproof and its data plane depend on, and what their tests need, in the versions that
kvproof is tested with. torch, triton and numpy are left out: the Python of a GPU machine has them, for its driver.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTED_WITH = ("pytest", "pytest-timeout", "pytest-xdist")  # the tests need them, kvproof does not
THERE = {"torch", "triton", "numpy"}  # what the Python of a GPU machine has itself
CARRIED_MB_MAX = 64
PYTHONS = ("3.11", "3.12")  # what a machine may have; the wheels of a third would be more than 64 MB
HASHES = "sha256.txt"  # in the folder of carried wheels: for each a line with its hash and name


class BadWheel(Exception):
    """A carried wheel is missing, or is not the one that was fetched. The message is for the user."""


def unpack_carried(carried: Path, packages: Path) -> None:
    """Unpack the carried wheels for this Python, each once. Raises BadWheel."""
    hashes = carried / HASHES
    for line in hashes.read_text().splitlines() if hashes.exists() else ():
        digest, name = line.split()
        wheel = carried / name
        if not wheel.exists():
            raise BadWheel(f"{wheel} is missing, and {hashes} lists it; copy the whole folder again")
        if digest_of(wheel) != digest:
            raise BadWheel(f"{wheel} is not the file that {hashes} lists; copy the whole folder again")
        if fits(name, f"cp3{sys.version_info.minor}"):
            unpack(wheel, packages)


def fits(wheel: str, python: str) -> bool:
    """Whether a wheel is for this Python, such as cp312, by its file name."""
    tags, abi = wheel.split("-")[-3], wheel.split("-")[-2]
    return any(tag == python or tag in ("py3", "py2.py3") for tag in tags.split(".")) or (
        abi == "abi3" and int(tags.split(".")[0][3:]) <= int(python[3:])
    )


def unpack(wheel: Path, packages: Path) -> None:
    """Unpack a wheel, if no earlier run has done it."""
    mark = packages / f".{wheel.stem}"
    if not mark.exists():
        with zipfile.ZipFile(wheel) as file:
            file.extractall(packages)
        mark.touch()


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def carry(to: Path, pythons: Sequence[str]) -> int:
    """Fetch the wheels that a GPU machine lacks, in the versions that kvproof is tested with, and write their hashes.

    pythons: the versions of Python that the machine may have. Returns the exit code.
    """
    to.mkdir(parents=True, exist_ok=True)
    pinned = re.findall(r"^([\w.-]+==[^\\\n]+)", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    versions = to / "versions.txt"
    versions.write_text("\n".join(pinned) + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(to)]
    platforms = [f"--platform=manylinux{tag}_x86_64" for tag in ("2014", "_2_17", "_2_27", "_2_28")]
    for python in pythons:
        chosen = [*platforms, f"--python-version={python}", "-c", str(versions)]
        if subprocess.run([*command, *chosen, *_dependencies()]).returncode:
            print(f"the packages for Python {python} could not be fetched; pip says why above", file=sys.stderr)
            return 2
    for wheel in to.glob("*.whl"):
        if wheel.name.split("-")[0] in THERE:
            wheel.unlink()
    wheels = sorted(to.glob("*.whl"))
    (to / HASHES).write_text("".join(f"{digest_of(wheel)} {wheel.name}\n" for wheel in wheels))
    megabytes = sum(wheel.stat().st_size for wheel in wheels) / 2**20
    names = list(dict.fromkeys(one.name.split("-")[0] for one in wheels))
    print(f"{len(names)} packages for Python {', '.join(pythons)}, {megabytes:.1f} MB in {to}: {', '.join(names)}")
    if megabytes > CARRIED_MB_MAX:
        print(f"that is more than {CARRIED_MB_MAX} MB; name fewer versions of Python", file=sys.stderr)
        return 2
    return 0


def _dependencies() -> list[str]:
    """The names of what kvproof and its data plane depend on, and of what their tests need."""
    text, listed = (ROOT / "pyproject.toml").read_text(), list(TESTED_WITH)
    for name in ("dependencies", "device"):
        block = text[text.index(f"\n{name} = [") :]
        listed += re.findall(r'^\s*"([\w.-]+)', block[: block.index("\n]")], re.MULTILINE)
    return [name for name in listed if name not in THERE]
