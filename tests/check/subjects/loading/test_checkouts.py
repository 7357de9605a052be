"""A checkout of an engine in place of a release: its names, the release that it is, and what is kept of it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.golden_files import Command

from kvproof.check.counterexample.keeping import without_home
from kvproof.check.counterexample.store import raw_trace
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.runs.replay import Trust, UntrustedSubject
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.content import content_of
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.loading.checkouts import checkout, digest_of
from kvproof.check.subjects.registry import NAMED, as_release, find
from kvproof.spec.trace import CodePlace

MODULE, RADIX = "vllm/v1/core/kv_cache_manager.py", "sglang/srt/mem_cache/radix_cache.py"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of vLLM in the working folder, which says that it is 0.32.0."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "_in_place", {})
    (tmp_path / "tree" / MODULE).parent.mkdir(parents=True)
    (tmp_path / "tree" / MODULE).write_text("class KVCacheManager: ...\n")
    (tmp_path / "tree" / "vllm" / "version.py").write_text('"""The version."""\n\n__version__ = "0.32.0"\n')
    digest_of.cache_clear()
    return tmp_path / "tree"


@pytest.fixture(autouse=True)
def driven(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter of vLLM says which release it drives, and from which folder."""

    def make(release: str) -> Any:
        return SimpleNamespace(release=release, folder=download.find("vllm", release))

    monkeypatch.setitem(NAMED, "vllm-v1", replace(NAMED["vllm-v1"], make=make))


@pytest.mark.parametrize("name", ["./tree", "{tree}", "tree/", "0.32.0@./tree"])
def test_a_checkout_is_driven_as_the_release_that_it_says_it_is(tree: Path, name: str) -> None:
    made: Any = find(f"vllm-v1=={name.format(tree=tree)}")()
    assert (made.release, made.folder) == ("0.32.0", tree.resolve())


def test_a_checkout_is_driven_as_the_release_that_it_is_like(tree: Path) -> None:
    made: Any = find(as_release("vllm-v1==./tree", "0.30.0"))()
    assert (made.release, made.folder) == ("0.30.0", tree.resolve())


@pytest.mark.parametrize(
    ("engine", "module", "file", "text"),
    [
        ("vllm", MODULE, "PKG-INFO", "Metadata-Version: 2.4\nName: vllm\nVersion: 1.2.3\n"),
        ("vllm", MODULE, "vllm/_version.py", "TYPE: object\n__version__ = version = '1.2.3'\n"),
        ("vllm", MODULE, "pyproject.toml", '[build-system]\nversion = "9"\n[project]\nname = "x"\nversion = "1.2.3"\n'),
        ("exllamav3", "exllamav3/generator/pagetable.py", "exllamav3/version.py", '__version__ = "1.2.3"\n'),
        (
            "transformers",
            "src/transformers/generation/continuous_batching/cache_allocators/cache_pool.py",
            "src/transformers/__init__.py",
            'import x\n__version__ = "1.2.3"\n',
        ),
        ("sglang", f"python/{RADIX}", "python/sglang/version.py", "__version__ = '1.2.3'\n"),
        (
            "sglang",
            f"python/{RADIX}",
            "python/pyproject.toml",
            '[project]\nversion = "1.2.3"\n',
        ),
    ],
)
def test_the_release_is_read_where_the_engine_writes_it(
    tmp_path: Path, engine: str, module: str, file: str, text: str
) -> None:
    for name, content in ((module, ""), (file, text)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert checkout(engine, str(tmp_path)).release == "1.2.3"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vllm-v1==./nowhere", "vllm-v1==./nowhere: there is no folder ./nowhere"),
        ("sglang==./tree", "sglang==./tree: ./tree is no checkout of sglang: it has none of sglang/srt/mem_cache"),
        (
            "vllm-v1==./silent",
            "./silent does not say which release of vllm it is; name one that it is like with --like",
        ),
        ("vllm-v1==./newer", "release 0.99.0.dev3 lies outside those that vllm-v1 was judged with (0.6.5 to"),
        ("vllm-v1==9.9@./tree", "release 9.9 lies outside those that vllm-v1 was judged with (0.6.5 to"),
        ("vllm-v1==0.32.0@./tree@x", "there is no folder ./tree@x"),
        (f"vllm-v1==./{'a' * 300}", "cannot be a folder: File name too long"),
        ("vllm-v1==./tree+checkout", "there is no folder ./tree+checkout"),
        ("vllm-v1==nonsense+checkout", "'vllm==nonsense+checkout' is not downloaded"),
    ],
)
def test_what_is_no_checkout_of_a_release_in_the_table_is_refused_with_one_sentence(
    tree: Path, name: str, said: str
) -> None:
    for folder, version in (("silent", ""), ("newer", "__version__ = '0.99.0.dev3'")):
        (tree.parent / folder / MODULE).parent.mkdir(parents=True)
        (tree.parent / folder / MODULE).touch()
        (tree.parent / folder / "vllm" / "version.py").write_text(version)
    with pytest.raises(UnknownSubject) as caught:
        find(name)
    text = str(caught.value)
    assert said.replace("'vllm==nonsense+checkout'", "vllm nonsense+checkout") in text
    assert "\n" not in text


def test_a_process_that_drove_a_checkout_does_not_take_it_for_the_release(tree: Path) -> None:
    find("vllm-v1==./tree")()
    with pytest.raises(UnknownSubject, match=r"vllm 0\.32\.0 is not downloaded"):
        find("vllm-v1==0.32.0")()


def test_a_checkout_that_is_added_has_a_name_of_its_own(tree: Path, command: Command) -> None:
    assert command("engines", "add", "./tree").exit_code == 0
    made: Any = find("vllm-v1==0.32.0+checkout")()
    assert (made.release, made.folder) == ("0.32.0", tree.resolve())
    assert command("engines", "list").exit_code == 0
    tree.rename(tree.parent / "elsewhere")
    with pytest.raises(UnknownSubject, match=r"the checkout .* is not there any more"):
        find("vllm-v1==0.32.0+checkout")


def test_a_second_checkout_of_one_release_does_not_take_the_name_of_the_first(tree: Path, command: Command) -> None:
    tree.parent.joinpath("other").mkdir()
    tree.rename(tree.parent / "other" / "tree")
    assert command("engines", "add", "./other/tree").exit_code == 0
    (tree / MODULE).parent.mkdir(parents=True)
    (tree / MODULE).touch()
    assert command("engines", "add", "./tree", "--like", "0.32.0").exit_code == 2


def test_no_file_chooses_a_checkout(tree: Path) -> None:
    for name in ("vllm-v1==./tree", "vllm-v1==0.32.0@./tree"):
        with pytest.raises(UntrustedSubject):
            Trust().subject_of(Path("trace.json"), name)


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("vllm-v1=={tree}", "vllm-v1==./tree"),
        ("vllm-v1==0.30.0@{tree}", "vllm-v1==0.30.0@./tree"),
        ("vllm-v1==./tree", "vllm-v1==./tree"),
        ("nano-vllm=={tree}", "nano-vllm==./tree"),
        ("vllm-v1==0.32.0", "vllm-v1==0.32.0"),
        ("{tree}/own.py:make", "{tree}/own.py:make"),
    ],
)
def test_what_is_saved_does_not_say_where_a_checkout_lies(tree: Path, name: str, saved: str) -> None:
    found = Counterexample(Config(), [], Finding("total-calls", "it raised"))
    assert raw_trace(name.format(tree=tree), found, "walker", 1).subject == saved.format(tree=tree)


@pytest.mark.parametrize("name", ["vllm-v1=={tree}", "vllm-v1==./tree", "nano-vllm=={tree}"])
def test_a_line_of_a_checkout_is_named_from_the_folder_of_its_package(tree: Path, name: str) -> None:
    place = CodePlace("KVCacheManager.free", str(tree.resolve() / MODULE), 3)
    assert without_home(place, name.format(tree=tree)).file == MODULE


@pytest.mark.parametrize("name", ["vllm-v1==./tree", "vllm-v1==0.30.0@./tree", "nano-vllm==./tree"])
def test_a_checkout_that_has_changed_is_searched_again(tree: Path, name: str) -> None:
    before = content_of(name)
    assert before
    (tree / MODULE).write_text("class KVCacheManager: pass\n")
    digest_of.cache_clear()  # as another process does
    assert content_of(name) not in ("", before)
    assert content_of("vllm-v1==0.32.0") == ""


@pytest.mark.engine
def test_the_sources_of_a_release_are_judged_alike_from_a_folder(tmp_path: Path) -> None:
    folder = download.add("vllm==0.33.0")
    (tmp_path / "tree").symlink_to(folder)
    said = []
    for name in ("vllm-v1==0.33.0", "vllm-v1==./tree"):
        words = ["hunt", "--subject", name, "--seed", "1", "--effort", "2000", "--out", "out"]
        command = [sys.executable, "-c", "from kvproof.check.cli import main; main()", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        said.append((done.stdout + done.stderr).replace(name, "SUBJECT"))
    assert "SUBJECT is a checkout that is driven as release 0.33.0 of vllm" in said[1]
    counts = [[line for line in text.splitlines() if line.startswith((" explorer", " walker"))] for text in said]
    assert counts[0] == counts[1] != []
