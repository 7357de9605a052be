"""What the digest of a subject's code depends on: its files, those beside it, and what is installed."""

import os
from pathlib import Path

import pytest

from kvproof.check.subjects.content import content_of


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A subject in the working folder, with a folder of installed packages among those that are searched."""
    (tmp_path / "site").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own.py").write_text("def make(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path / "own")
    return "own.py:make"


def install(version: str) -> None:
    """Replace what is installed of a package by another version, as pip does."""
    site = Path("..", "site")
    for folder in site.glob("*.dist-info"):
        (folder / "METADATA").unlink()
        folder.rmdir()
    (folder := site / f"engine_of_test-{version}.dist-info").mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: engine-of-test\nVersion: {version}\n")


def test_the_same_code_has_the_same_digest(subject: str) -> None:
    assert content_of(subject) == content_of(subject) != ""


def test_another_version_of_an_installed_package_is_other_code(subject: str) -> None:
    found = [content_of(subject)]
    for version in ("1.0", "1.1", "1.0"):
        install(version)
        found.append(content_of(subject))
    assert found[1] == found[3]
    assert len({*found}) == 3


def test_a_file_that_is_new_or_written_again_is_other_code(subject: str) -> None:
    found = [content_of(subject)]
    for text in ("a = 1\n", "a = 1\n"):
        Path("beside.py").write_text(text)
        os.utime("beside.py", ns=(len(found), len(found)))
        found.append(content_of(subject))
    Path("notes.txt").write_text("no code")
    assert len({*found}) == 3
    assert content_of(subject) == found[-1]
