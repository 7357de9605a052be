"""A library is compiled once; a compiler that fails, hangs or is not there gives one message; the cache may be lost."""

import hashlib
import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from kvproof.spec.c_reader.library import NoLibrary, folder_of_libraries, load

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
SOURCE = "int answer(void) { return 42; }"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    return folder_of_libraries()


def compiler(tmp_path: Path, script: str) -> str:
    path = tmp_path / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_library_is_compiled_once(own_cache: Path) -> None:
    first, second = load(SOURCE), load(SOURCE)
    assert (first.is_cached, second.is_cached, second.note) == (False, True, "")
    assert second.library.answer() == 42
    assert sorted(path.suffix for path in own_cache.iterdir()) == [".sha256", ".so"]


def test_another_source_is_another_library() -> None:
    load(SOURCE)
    other = load(SOURCE.replace("42", "43"))
    assert (other.is_cached, other.library.answer()) == (False, 43)


def test_a_damaged_library_is_compiled_again(own_cache: Path) -> None:
    load(SOURCE)
    path = next(own_cache.glob("*.so"))
    whole = path.read_bytes()
    path.unlink()  # this process still runs what was loaded from it
    path.write_bytes(whole[:100])
    again = load(SOURCE)
    assert (again.is_cached, again.library.answer()) == (False, 42)
    assert again.note == f"{path} is not as it was kept, and has been compiled again"
    assert load(SOURCE).is_cached


def test_without_a_folder_to_write_the_library_is_for_this_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    loaded = load(SOURCE)
    assert loaded.library.answer() == 42
    assert loaded.note.startswith(f"nothing is kept in {tmp_path}/file/kvproof/c_reader: ")


@pytest.mark.parametrize("is_parent", [False, True])
def test_nothing_is_loaded_from_a_folder_to_which_others_can_write(own_cache: Path, is_parent: bool) -> None:
    load(SOURCE)
    open_to_all = own_cache.parent if is_parent else own_cache
    open_to_all.chmod(0o777)
    loaded = load(SOURCE)
    assert (loaded.is_cached, loaded.library.answer()) == (False, 42)
    assert loaded.note.startswith(
        f"nothing is kept in {own_cache}: {open_to_all} belongs to another user, or others can"
    )
    open_to_all.chmod(0o700)
    assert load(SOURCE).is_cached


def test_a_library_to_which_others_can_write_is_compiled_again(own_cache: Path) -> None:
    load(SOURCE)
    path = next(own_cache.glob("*.so"))
    path.chmod(0o666)
    again = load(SOURCE)
    assert (again.is_cached, again.note) == (False, f"{path} is not as it was kept, and has been compiled again")
    assert load(SOURCE).is_cached


def test_what_is_kept_is_private_whatever_the_user_lets_others_do_with_new_files(own_cache: Path) -> None:
    before = os.umask(0)
    try:
        load(SOURCE)
    finally:
        os.umask(before)
    assert not any(path.stat().st_mode & 0o077 for path in (own_cache.parent, own_cache, *own_cache.iterdir()))
    assert load(SOURCE).is_cached


@pytest.mark.parametrize("is_library", [False, True])
def test_what_cannot_be_loaded_or_was_made_of_another_source_is_compiled_again(
    own_cache: Path, is_library: bool
) -> None:
    load(SOURCE)
    path = next(own_cache.glob("*.so"))
    load("int question(void) { return 6; }")
    other = next(one for one in own_cache.glob("*.so") if one != path)
    path.unlink()
    path.write_bytes(other.read_bytes() if is_library else b"no library")
    path.chmod(0o600)
    path.with_suffix(".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest())
    again = load(SOURCE)
    assert (again.is_cached, again.library.answer()) == (False, 42)
    assert again.note == f"{path} is not as it was kept, and has been compiled again"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'x.c:1: error: no such thing' >&2; exit 1", "fails with exit code 1: x.c:1: error: no such thing"),
        ('[ "$1" = --version ] || sleep 60', "has not ended after 0.2 s"),
        ("exit 0", "ends without an error and writes nothing"),
        ('[ "$1" = --version ] && exit; for last; do :; done; echo junk > "${last%.c}.so"', "cannot be loaded: "),
    ],
)
def test_a_compiler_that_does_not_compile_is_one_message(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path, script))
    began = time.monotonic()
    with pytest.raises(NoLibrary, match=message):
        load(SOURCE, seconds=0.2)
    assert time.monotonic() - began < 10


def test_no_compiler_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoLibrary, match="none of cc, gcc, clang is there; install one, or explore without --reader c"):
        load(SOURCE)
