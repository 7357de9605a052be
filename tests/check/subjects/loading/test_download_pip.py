"""The real pip, on an index that is a folder: it unpacks the sources and runs none of them. No network."""

import io
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.subjects.loading import EngineError, download

FILES = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: vllm\nVersion: 7.7\n",
    "setup.py": "open('{ran}', 'w').close()",
    "vllm/core/block_manager.py": "",
}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks."""
    folder = tmp_path / "index"
    folder.mkdir()
    with tarfile.open(folder / "vllm-7.7.tar.gz", "w:gz") as archive:
        for name, content in FILES.items():
            text = content.format(ran=tmp_path / "ran")
            member = tarfile.TarInfo(f"vllm-7.7/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_release_is_unpacked_and_its_build_script_is_not_run(tmp_path: Path, index: Path) -> None:
    folder = download.add("vllm==7.7", tmp_path / "cache")
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == set(FILES)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["vllm-7.7"]
    assert not (tmp_path / "ran").exists()


def test_the_command_says_what_it_unpacked(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path / "cache"))
    done = CliRunner().invoke(app, ["engines", "add", "vllm==7.7"])
    words = " ".join(done.output.split())
    assert "vllm-7.7: 2 Python files, with their metadata. None of them was run." in words
    assert not (tmp_path / "ran").exists()


def test_a_release_that_the_index_does_not_have_is_named(tmp_path: Path, index: Path) -> None:
    with pytest.raises(EngineError, match=r"offers no vllm==7\.8"):
        download.add("vllm==7.8", tmp_path / "cache")


def test_the_error_in_an_environment_without_pip_says_how_to_get_it(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvproof.check.subjects.loading.download.PIP", (sys.executable, "-I", "-S", "-m", "pip"))
    with pytest.raises(EngineError, match="ensurepip"):
        download.add("vllm==7.7", tmp_path / "cache")
