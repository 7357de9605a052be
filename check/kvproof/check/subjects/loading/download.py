"""Download the sources of an engine once from the package index; later uses read them from a cache.

The cache is `$KVPROOF_CACHE`, else `engines` in the folder of all caches (`$XDG_CACHE_HOME/kvproof`, by default
`~/.cache/kvproof`), with one folder NAME-VERSION per release that holds the Python files and the metadata. A folder
appears there complete or not at all: the release is prepared next to it, checked, and moved in one step. No code of the
release runs: nothing is built, and nothing is imported here.

Engines have dependencies of gigabytes and builds that need a GPU toolkit, but a block manager is a few Python files.
Pip's ordinary client fetches them, in a subprocess, so that the user's own index, proxy and certificates apply. After
the download, pip would ask the build script of the release for its metadata. It asks in a process of its own, and here
it may start none (`WITHOUT_PROCESSES`). So it fails at this point, and an option makes it leave the unpacked archive
where it is. A release without a source archive is taken as a wheel, of which the Python files are read. Such a wheel
must suit this platform and Python, or pip finds none.
"""

import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

from kvproof.check.hosts.program import finished
from kvproof.check.subjects.loading import EngineError
from kvproof.spec.cache_folder import cache_folder

# Pip runs a build script in a new process. "keyring" is the program that knows the password of a private index.
WITHOUT_PROCESSES = """
import os, runpy, sys

def refuse(event, arguments):
    if event in ("os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system") or (
        event == "subprocess.Popen" and os.path.basename(str(arguments[0])) != "keyring"
    ):
        raise PermissionError("no program is started for this download")

sys.addaudithook(refuse)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
CACHE = "KVPROOF_CACHE"  # the variable that names the folder of the releases
OPTIONS = ("--no-deps", "--no-input", "--no-color", "--progress-bar", "off")
PIP = (sys.executable, "-P", "-c", WITHOUT_PROCESSES, "download", *OPTIONS)
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
        raise EngineError(reason(requirement, output))


def _run(requirement: str, scratch: Path, options: tuple[str, ...]) -> str:
    command = [*PIP, *options, "--dest", str(scratch / "got"), "--", requirement]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    done = finished(command, environment=environment, in_other_encoding="replace")
    output = done.output + done.errors
    # What the network or the disk refused once, a wheel would be refused as well.
    if done.code and any(sign in output for sign in (*NO_SPACE, *NO_NETWORK)):
        raise EngineError(reason(requirement, output))
    return output


def _unpacked(wheel: Path, into: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.endswith((".py", ".dist-info/METADATA")):
                archive.extract(member, into)
    return into


def reason(requirement: str, output: str) -> str:
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


# Nothing here can start an option, end an argument or leave a folder.
SPEC = re.compile(r"(?P<name>[A-Za-z0-9]+([._-][A-Za-z0-9]+)*)==(?P<version>[A-Za-z0-9]+([.!+_-][A-Za-z0-9]+)*)")
KEPT = ("*.py", "PKG-INFO", "METADATA", "LICENSE*")


@dataclass(frozen=True)
class KnownPackage:
    """An engine that has an adapter: its package, and modules of which a usable release has at least one."""

    package: str
    modules: tuple[str, ...]


KNOWN = {
    "exllamav3": KnownPackage("exllamav3", ("generator/pagetable.py",)),
    "lmcache": KnownPackage("lmcache", ("v1/distributed/l1_manager.py",)),
    "lmdeploy": KnownPackage("lmdeploy", ("pytorch/paging/block_trie/trie.py",)),
    "sglang": KnownPackage("sglang", ("srt/mem_cache/radix_cache.py",)),
    "transformers": KnownPackage("transformers", ("generation/continuous_batching/cache_allocators/cache_pool.py",)),
    "vllm": KnownPackage("vllm", ("core/block_manager.py", "core/block_manager_v2.py", "v1/core/kv_cache_manager.py")),
}


class Engine(NamedTuple):
    """A release whose sources are in the cache."""

    name: str
    version: str
    folder: Path


def add(spec: str, cache: Path | None = None) -> Path:
    """The folder with the sources of `spec`: NAME==VERSION, downloaded if needed. Raises EngineError."""
    name, version = parse(spec)
    target = _folder(name, version, cache)
    if not target.exists():
        with _scratch(target.parent) as scratch:
            _bring(name, version, scratch, target)
    return _intact(name, target)


_in_place: dict[tuple[str, str], Path] = {}  # the checkout that this process takes for a release


def take_for_release(name: str, version: str, *, root: Path | None) -> None:
    """Let this process take the sources in `root` for those of a release, or those of the release itself."""
    key = parse(f"{name}=={version}")
    if root is None:
        _in_place.pop(key, None)
    else:
        _in_place[key] = root


def is_taken_from_checkout(name: str, version: str) -> bool:
    """Whether this process takes a checkout for that release."""
    return parse(f"{name}=={version}") in _in_place


def find(name: str, version: str, cache: Path | None = None) -> Path:
    """The folder of a downloaded release, or of the checkout in its place. Raises EngineError if there is none."""
    name, version = parse(f"{name}=={version}")
    if (name, version) in _in_place:
        return _in_place[name, version]
    target = _folder(name, version, cache)
    if not target.exists():
        if target.is_symlink():
            raise EngineError(f"the checkout {target.readlink()} of {name}=={version} is not there any more")
        raise EngineError(f"{name} {version} is not downloaded; run `kvproof engines add {name}=={version}`")
    return _intact(name, target)


def installed_engines(cache: Path | None = None) -> list[Engine]:
    """Every release in the cache, by name and version."""
    found = []
    for name in KNOWN:
        for folder in (cache or default_cache()).glob(f"{name}-*"):
            found.append(Engine(name, folder.name.removeprefix(f"{name}-"), folder))
    return sorted(found, key=lambda engine: (engine.name, order_of(engine.version)))


def default_cache() -> Path:
    """Where releases are kept unless a caller says otherwise."""
    named = os.environ.get(CACHE)
    return Path(named).expanduser() if named else cache_folder() / "engines"


def parse(spec: str) -> tuple[str, str]:
    """Name and version of NAME==VERSION; raises EngineError if it is not of that form or not of a known engine."""
    match = SPEC.fullmatch(spec)
    if not match:
        raise EngineError(f"{spec!r} is no release; write NAME==VERSION, such as vllm==0.9.2, or the path of a folder")
    name = re.sub(r"[._-]+", "-", match["name"]).lower()
    if name not in KNOWN:
        raise EngineError(f"kvproof has no adapter for {name!r}; it has one for {', '.join(KNOWN)}")
    return name, match["version"].lower()


def _folder(name: str, version: str, cache: Path | None) -> Path:
    return (cache or default_cache()) / f"{name}-{version}"


def usable(known: KnownPackage, tree: Path) -> bool:
    """Whether a folder has the package of an engine, with a module that an adapter drives."""
    return any((tree / known.package / module).is_file() for module in known.modules)


def _intact(name: str, folder: Path) -> Path:
    if not usable(KNOWN[name], folder):
        raise EngineError(f"the sources in {folder} are damaged; remove the folder and add the release again")
    return folder


@contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    """A folder in the cache, thus on its disk, so that the finished sources can be moved in one step."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".incoming-", dir=cache))
    except OSError as error:
        raise EngineError(
            f"the cache {cache} cannot be written ({error.strerror or error}); set KVPROOF_CACHE to a folder that can"
        ) from error
    try:
        yield folder
    except OSError as error:
        raise EngineError(
            f"{cache} could not be written: {error.strerror or error}; make room, or set KVPROOF_CACHE"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bring(name: str, version: str, scratch: Path, target: Path) -> None:
    known, problem = KNOWN[name], ""
    for tree in fetch(f"{name}=={version}", scratch):
        if not (tree / known.package).is_dir():
            continue
        came = version_of(tree)
        if order_of(came) != order_of(version):
            problem = f"what came calls itself version {came or 'nothing'}"
        elif not usable(known, tree):
            raise EngineError(f"{name} {version} has no block manager that kvproof can drive; try another release")
        else:
            _publish(_kept(tree, known.package, scratch / "kept"), target)
            return
    raise EngineError(f"{name}=={version} was downloaded, but {problem or f'holds no package {known.package}'}")


def version_of(tree: Path) -> str:
    """The version that the metadata of an unpacked archive or wheel states; empty if it has none."""
    for metadata in (tree / "PKG-INFO", *tree.glob("*.dist-info/METADATA")):
        if metadata.is_file():
            headers = HeaderParser().parsestr(metadata.read_text(encoding="utf-8", errors="replace"))
            return str(headers["Version"] or "")
    return ""


def order_of(version: str) -> list[tuple[bool, int, str]]:
    """A version in comparable parts; the build's own suffix (after +) and zeros at the end say nothing."""
    words = re.findall(r"\d+|[a-z]+", version.lower().partition("+")[0])
    while words and words[-1] == "0":
        words.pop()
    return [(word.isdigit(), int(word) if word.isdigit() else 0, word) for word in words]


def _kept(tree: Path, package: str, into: Path) -> Path:
    """A copy of what is needed: the Python files of the package, the metadata and the licence."""
    for pattern in KEPT:
        for part in (*tree.glob(pattern), *tree.glob(f"*.dist-info/{pattern}"), *(tree / package).rglob(pattern)):
            if part.is_file() and not part.is_symlink():
                copy = into / part.relative_to(tree)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(part, copy)
    return into


def _publish(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():  # else another process has brought the same release meanwhile
            raise
