"""Bringing a release in: what is accepted, what is kept, and what is said when it does not work. Pip is played."""

import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import EngineError, download

MANAGER = "vllm/core/block_manager.py"
Pip = Callable[[Path], str]  # given its temporary folder, it does its work and tells what went wrong


def source_tree(root: Path, version: str, manager: str = MANAGER) -> Path:
    """A release as pip leaves it unpacked: more than is needed, and a package that must never be imported."""
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        "LICENSE": "as is",
        "setup.py": "raise SystemExit('built')",
        "csrc/cache_kernels.cu": "",
        "vllm/_C.abi3.so": "",
        "vllm/__init__.py": "raise SystemExit('imported')",
        manager: "class SelfAttnBlockSpaceManager: pass",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def unpacks(version: str, manager: str = MANAGER) -> Pip:
    def run(scratch: Path) -> str:
        source_tree(scratch / "pip-download-x1" / "vllm_5f3a", version, manager)
        return "ERROR: metadata-generation-failed"

    return run


def says(text: str) -> Pip:
    return lambda scratch: text


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Put answers in the place of pip's, one for each time it is run; the list holds the commands it was given."""

    def put(*answers: Pip) -> list[list[str]]:
        commands: list[list[str]] = []

        def run(command: list[str], *, env: dict[str, str], **options: object) -> subprocess.CompletedProcess[str]:
            said = answers[len(commands)](Path(env["TMPDIR"]))
            commands.append(command)
            return subprocess.CompletedProcess(command, 1 if said else 0, "", said)

        monkeypatch.setattr(subprocess, "run", run)
        return commands

    return put


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def error_of(spec: str, cache: Path) -> str:
    with pytest.raises(EngineError) as caught:
        download.add(spec, cache)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_release_is_kept_as_python_files_metadata_and_licence_although_its_build_failed(
    tmp_path: Path, play: Callable[..., list[list[str]]]
) -> None:
    play(unpacks("0.9.2"))
    folder = download.add("vllm==0.9.2", tmp_path)
    assert folder == tmp_path / "vllm-0.9.2"
    assert files_in(tmp_path) == {
        f"vllm-0.9.2/{name}" for name in ("PKG-INFO", "LICENSE", "setup.py", "vllm/__init__.py", MANAGER)
    }


def test_the_second_time_nothing_is_downloaded(tmp_path: Path, play: Callable[..., list[list[str]]]) -> None:
    commands = play(unpacks("0.9.2"))
    first = download.add("vllm==0.9.2", tmp_path)
    assert (download.add("VLLM==0.9.2", tmp_path), len(commands)) == (first, 1)


def test_a_release_without_a_source_archive_is_taken_from_its_wheel(
    tmp_path: Path, play: Callable[..., list[list[str]]]
) -> None:
    def saves_wheel(scratch: Path) -> str:
        (scratch / "got").mkdir()
        with zipfile.ZipFile(scratch / "got" / "vllm-0.6.0-cp38-abi3-linux_x86_64.whl", "w") as wheel:
            wheel.writestr(MANAGER, "")
            wheel.writestr("vllm/_C.abi3.so", "")
            wheel.writestr("vllm-0.6.0.dist-info/METADATA", "Name: vllm\nVersion: 0.6.0\n")
        return ""

    play(says("ERROR: No matching distribution found for vllm==0.6.0"), saves_wheel)
    folder = download.add("vllm==0.6.0", tmp_path)
    assert files_in(folder) == {MANAGER, "vllm-0.6.0.dist-info/METADATA"}


def test_a_release_of_another_version_is_not_taken_for_the_one_asked_for(
    tmp_path: Path, play: Callable[..., list[list[str]]]
) -> None:
    play(unpacks("0.9.1"), says("ERROR: No matching distribution found"))
    assert "calls itself version 0.9.1" in error_of("vllm==0.9.2", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_build_suffix_and_trailing_zeros_are_the_same_version(
    tmp_path: Path, play: Callable[..., list[list[str]]]
) -> None:
    play(unpacks("0.9.0+cu126"))
    assert download.add("vllm==0.9", tmp_path) == tmp_path / "vllm-0.9"


def test_a_release_without_a_block_manager_is_refused(tmp_path: Path, play: Callable[..., list[list[str]]]) -> None:
    play(unpacks("0.0.1", "vllm/block.py"))
    assert "no block manager" in error_of("vllm==0.0.1", tmp_path)


def test_a_download_that_breaks_off_leaves_nothing_in_the_cache(
    tmp_path: Path, play: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(folder: Path, target: Path) -> None:
        raise KeyboardInterrupt

    play(unpacks("0.9.2"))
    monkeypatch.setattr(download, "_publish", stop)
    with pytest.raises(KeyboardInterrupt):
        download.add("vllm==0.9.2", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_of_two_processes_that_bring_the_same_release_the_later_uses_what_the_earlier_brought(
    tmp_path: Path, play: Callable[..., list[list[str]]]
) -> None:
    def meanwhile(scratch: Path) -> str:
        (source_tree(tmp_path / "vllm-0.9.2", "0.9.2") / "theirs.py").touch()
        return unpacks("0.9.2")(scratch)

    play(meanwhile)
    assert (download.add("vllm==0.9.2", tmp_path) / "theirs.py").exists()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("ERROR: No matching distribution found for vllm==0.9.2", "offers no vllm==0.9.2"),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution found",
            "no package index could be reached",
        ),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "no space left"),
        ("/usr/bin/python: No module named pip", "has no pip"),
        ("Collecting vllm\nERROR: strange", "ERROR: strange"),
    ],
)
def test_each_failure_of_pip_is_one_line_that_says_what_to_do(
    tmp_path: Path, play: Callable[..., list[list[str]]], said: str, expected: str
) -> None:
    play(says(said), says(said))
    assert expected in error_of("vllm==0.9.2", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_fails_is_not_tried_again_for_the_wheel(
    tmp_path: Path, play: Callable[..., list[list[str]]]
) -> None:
    commands = play(says("Temporary failure in name resolution"))
    error_of("vllm==0.9.2", tmp_path)
    assert len(commands) == 1


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "vllm",
        "vllm=0.9.2",
        "vllm>=0.9",
        "vllm==",
        "==0.9.2",
        "-r==1",
        "--index-url==x",
        "vllm==-1",
        "vllm==0.9.2 -r x",
        "vllm==0.9.2\n",
        "vllm==..",
        "vllm==0..9",
        "vllm[all]==0.9.2",
        "vllm==0.9.2;x",
        "vllm @ git+x",
        "vllm==*",
    ],
)
def test_an_invalid_release_never_reaches_pip(tmp_path: Path, play: Callable[..., list[list[str]]], spec: str) -> None:
    play()
    assert "NAME==VERSION" in error_of(spec, tmp_path)


def test_pip_is_given_the_release_as_an_operand_never_as_an_option(
    tmp_path: Path, play: Callable[..., list[list[str]]]
) -> None:
    commands = play(unpacks("0.9.2"))
    download.add("vllm==0.9.2", tmp_path)
    assert commands[0][-2:] == ["--", "vllm==0.9.2"]


def test_an_engine_without_an_adapter_never_reaches_pip(tmp_path: Path, play: Callable[..., list[list[str]]]) -> None:
    play()
    assert "no adapter for 'numpy'" in error_of("numpy==2.0", tmp_path)


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = error_of("vllm==0.9.2", tmp_path / "file" / "cache")
    assert "cannot be written" in text
    assert "KVPROOF_CACHE" in text


def test_a_damaged_release_in_the_cache_is_reported_as_damaged(tmp_path: Path) -> None:
    (source_tree(tmp_path / "vllm-0.9.2", "0.9.2") / MANAGER).unlink()
    assert "damaged" in error_of("vllm==0.9.2", tmp_path)


def test_what_was_not_brought_in_is_named_with_the_command_that_brings_it(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=re.escape("kvproof engines add vllm==0.9.2")):
        download.find("vllm", "0.9.2", tmp_path)


def test_the_cache_lists_its_releases_in_order_of_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("0.10.0", "0.9.2", "0.9.2.post1"):
        source_tree(tmp_path / f"vllm-{version}", version)
    (tmp_path / ".incoming-x").mkdir()
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path))
    assert [engine.version for engine in download.installed_engines()] == ["0.9.2", "0.9.2.post1", "0.10.0"]
