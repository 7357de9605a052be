"""Use pip to download the sources of a release, and nothing else.

Engines have dependencies of gigabytes and builds that need a GPU toolkit, but a block manager is a few Python files.
Pip's ordinary client fetches them, in a subprocess, so that the user's own index, proxy and certificates apply. An
option makes it keep its temporary folder: after the download it asks the release for its metadata, which fails where a
build dependency such as torch is absent, and the unpacked tree stays behind. (For that question pip runs the build
script of the release, as any `pip download` does; nothing is built.) A release without a source archive is
taken as a wheel, of which the Python files are read. Such a wheel must suit this platform and Python, or pip finds
none.
"""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from kvproof.check.subjects.loading import EngineError

PIP = (sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--no-color", "--progress-bar", "off")
FROM_SOURCE = ("--no-binary", ":all:", "--no-build-isolation", "--no-clean")
FROM_WHEEL = ("--only-binary", ":all:")

NO_SPACE = ("No space left on device", "Disk quota exceeded")
NO_NETWORK = (
    "Failed to establish a new connection",
    "Max retries exceeded",
    "after connection broken by",
    "name resolution",
    "Network is unreachable",
    "Cannot connect to proxy",
    "ReadTimeoutError",
    "ConnectTimeoutError",
    "SSLError",
    "CERTIFICATE_VERIFY_FAILED",
)
NO_RELEASE = ("No matching distribution found",)


def fetch(requirement: str, scratch: Path) -> Iterator[Path]:
    """Folders below `scratch` that should hold the sources of `requirement`, the source archive's before the wheel's.

    Raises EngineError if pip brings neither.
    """
    output = _run(requirement, scratch, FROM_SOURCE)
    trees = sorted(scratch.glob("pip-download-*/*/"))
    yield from trees
    output += _run(requirement, scratch, FROM_WHEEL)
    wheels = sorted((scratch / "got").glob("*.whl"))
    for wheel in wheels:
        yield _unpacked(wheel, scratch / "wheel")
    if not trees and not wheels:
        raise EngineError(_reason(requirement, output))


def _run(requirement: str, scratch: Path, options: tuple[str, ...]) -> str:
    command = [*PIP, *options, "--dest", str(scratch / "got"), "--", requirement]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    output = done.stdout + done.stderr
    # What the network or the disk refused once, a wheel would be refused as well.
    if done.returncode and any(sign in output for sign in (*NO_SPACE, *NO_NETWORK)):
        raise EngineError(_reason(requirement, output))
    return output


def _unpacked(wheel: Path, into: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.endswith((".py", ".dist-info/METADATA")):
                archive.extract(member, into)
    return into


def _reason(requirement: str, output: str) -> str:
    """Why pip downloaded nothing, in one line."""
    if any(sign in output for sign in NO_SPACE):
        return f"no space left while downloading {requirement}; free some, or set KVPROOF_CACHE to another disk"
    if any(sign in output for sign in NO_NETWORK):
        return f"no package index could be reached for {requirement}; check the network, or pip's index and proxy"
    if "No module named pip" in output:
        return f"{sys.executable} has no pip, which brings engines in; run `python -m ensurepip`"
    if any(sign in output for sign in NO_RELEASE):
        name = requirement.partition("==")[0]
        return f"the package index offers no {requirement} for this Python; see `pip index versions {name}`"
    errors = [line.strip() for line in output.splitlines() if line.startswith("ERROR")]
    last = errors[-1] if errors else "it said nothing"
    return f"pip brought no usable sources of {requirement}: {last}"
