"""Subjects by name: those of the table, and those that a user wrote."""

import re
import sys
from pathlib import Path

import pytest

from kvproof.check.isolation.remote_subject import answered
from kvproof.check.protocol.fault_attribution import StandInError
from kvproof.check.protocol.finding import OutsideTable
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.builtin import manager
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.loading.download import KNOWN
from kvproof.check.subjects.own import name_of
from kvproof.check.subjects.registry import NAMED, ROWS, Row, engine_of, find, outside_table

OURS = (
    *("kvproof", "kvproof-generation1", "kvproof-objects", "kvproof-offers", "kvproof-pair", "kvproof-pool"),
    *("kvproof-scheduler", "kvproof-store"),
)
GOOD = """
from kvproof.check import Capabilities, ManagerAdapter

class Adapter(ManagerAdapter):
    name = "own"

class Holder:
    @staticmethod
    def make():
        return Adapter()

NUMBER = 5
def none(): return None
def fails(): raise OSError("no such engine")
def leaves(): raise SystemExit(3)
def needs(argument): return Adapter()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's module in the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"own_{tmp_path.name.replace('-', '_')}.py"
    path.write_text(GOOD)
    return path


def test_every_row_of_the_table_has_a_name_of_its_own_and_ours_need_no_engine() -> None:
    assert len(NAMED) == len(ROWS)
    assert [row.name for row in ROWS if not (row.releases or row.is_checkout)] == list(OURS)
    assert [find(name)().name for name in OURS] == list(OURS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_which_releases_it_takes_and_of_which_engine(row: Row) -> None:
    assert bool(row.releases) == bool(row.engine) == bool(row.default_release)
    assert not (row.releases and row.is_checkout)
    assert row.engine in {"", *KNOWN}
    if row.engine:
        assert engine_of(f"{row.name}==1.0") == row.engine


@pytest.mark.parametrize("name", ["kvproof", "nano-vllm==.", "module:factory"])
def test_a_subject_that_is_no_release_has_no_engine(name: str) -> None:
    with pytest.raises(EngineError, match=f"{name} has no releases; there are those of exllamav3, lmcache, lmdeploy"):
        engine_of(name)


def test_the_page_of_engines_lists_the_level_and_the_releases_of_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "engines.md").read_text()
    listed = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+ \| [^|]+) \|", page, flags=re.MULTILINE))
    expected = {
        row.name: f"{row.level} | {'a checkout' if row.is_checkout else ' to '.join(dict.fromkeys(row.releases or ()))}"
        for row in ROWS
        if row.name not in OURS
    }
    assert listed == expected


@pytest.mark.parametrize("form", ["{stem}:Adapter", "{name}:Adapter", "./{name}:Adapter", "{path}:Holder.make"])
def test_an_adapter_of_ones_own_is_found_by_module_or_by_file(module: Path, form: str) -> None:
    name = form.format(stem=module.stem, name=module.name, path=module)

    assert find(name)().name == "own"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kvprof", "there is no subject 'kvprof'; did you mean kvproof?"),
        ("vllm-v00==0.9.2", "did you mean vllm-v0?"),
        (
            "zzz",
            f"there are {', '.join(NAMED)}, and module:factory or path/to/file.py:factory",
        ),
        ("kvproof==1", "kvproof takes no release"),
        ("vllm-v0==", "vllm-v0 takes a release or a path after =="),
        ("nano-vllm==", "nano-vllm takes a path after =="),
        ("nano-vllm", "nano-vllm has no releases: write nano-vllm==PATH"),
        (":make", "does not name a factory"),
        ("module:", "does not name a factory"),
        ("no_such_module:make", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("no/such/file.py:make", "there is no file no/such/file.py"),
        ("{stem}:Adaptor", "has no 'Adaptor'; did you mean Adapter?"),
        ("{stem}:Nothing", "has no 'Nothing'; it defines Adapter, Holder, none, fails, leaves, needs"),
        ("{stem}:Holder.mak", "has no 'mak'; did you mean make?"),
        ("{stem}:NUMBER", "NUMBER is not a factory: it is of type int, not callable"),
    ],
)
def test_a_name_that_finds_nothing_says_what_could_be_meant(module: Path, name: str, message: str) -> None:
    with pytest.raises(UnknownSubject) as refused:
        find(name.format(stem=module.stem))

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("fails", "the subject cannot be made: OSError: no such engine"),
        ("leaves", "the subject cannot be made: SystemExit: 3"),
        ("needs", "the subject cannot be made: TypeError: needs() missing 1 required positional argument"),
    ],
)
def test_a_factory_that_gives_no_subject_is_one_clear_error(module: Path, factory: str, message: str) -> None:
    make = find(f"{module.name}:{factory}")

    with pytest.raises(UnknownSubject) as refused:
        make()

    assert message in str(refused.value)


def test_a_manager_in_place_of_its_adapter_is_told_what_a_subject_is(module: Path) -> None:
    module.write_text(f"{GOOD}\nclass Pages:\n    def __init__(self, num_blocks): pass\n")
    with pytest.raises(UnknownSubject) as refused:
        find(f"{module.name}:Pages")()
    assert "Pages is no adapter, because it has no capabilities, open, observe: name a class" in str(refused.value)
    module.write_text(f"{GOOD}\nclass Odd(Adapter):\n    def __init__(self, num_blocks): pass\n")
    with pytest.raises(UnknownSubject, match=r"missing 1 required positional argument: 'num_blocks'$"):
        find(f"{module.name}:Odd")()


@pytest.mark.parametrize("text", ["import no_such_thing", "def broken(:", "raise SystemExit(1)", "1 / 0"])
def test_a_module_that_cannot_be_imported_is_one_clear_error(module: Path, text: str) -> None:
    module.write_text(text)

    with pytest.raises(UnknownSubject, match="cannot be imported"):
        find(f"{module.name}:Adapter")


def test_a_file_is_read_as_it_is_now(module: Path) -> None:
    find(f"{module.name}:Adapter")
    module.write_text(GOOD.replace('"own"', '"changed"'))

    assert find(f"{module.name}:Adapter")().name == "changed"


def test_a_factory_has_the_name_by_which_it_is_found_again() -> None:
    assert name_of(manager.BuiltIn) == "kvproof.check.subjects.builtin.manager:BuiltIn"
    assert name_of(lambda: None) is None


def test_a_factory_of_a_loose_file_is_named_by_the_file(module: Path) -> None:
    factory = type(find(f"{module.name}:Adapter")())

    assert name_of(factory) == f"{module.name}:Adapter"


def test_a_module_that_only_this_process_can_import_is_named_by_its_file(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pytest imports test files with `--import-mode=importlib`: by a name with folders that no path has."""
    factory = type(find(f"{module.name}:Adapter")())
    loaded = sys.modules[factory.__module__]
    monkeypatch.setitem(sys.modules, "tests.here.adapter", loaded)
    monkeypatch.setattr(factory, "__module__", "tests.here.adapter")

    assert name_of(factory) == f"{module.name}:Adapter"


def test_a_file_without_the_name_of_a_subject_lists_the_names_in_it(module: Path) -> None:
    with pytest.raises(UnknownSubject, match=rf"is a file; name the subject in it, as in {module.name}:A"):
        find(module.name)


@pytest.mark.parametrize("row", [row for row in ROWS if row.releases], ids=lambda row: row.name)
def test_a_release_before_the_oldest_or_after_the_newest_that_was_judged_is_outside(row: Row) -> None:
    assert row.releases is not None
    oldest, newest = row.releases
    assert [outside_table(f"{row.name}=={release}") for release in (oldest, newest, newest + ".0")] == [""] * 3
    for release in ("0.0.1", newest + ".1", "99.1"):
        says = f"{row.name}=={release} lies outside the releases of {row.engine} that {row.name} was judged with ("
        assert outside_table(f"{row.name}=={release}").startswith(says)


@pytest.mark.parametrize("name", ["kvproof", "lmdeploy", "nano-vllm==/a/path", "module:factory", "file.py:Adapter"])
def test_what_has_no_release_is_not_outside(name: str) -> None:
    assert outside_table(name) == ""


def test_an_adapter_that_fails_on_a_release_outside_the_table_does_not_fit_it() -> None:
    says = r"^lmdeploy==0\.17\.0 lies outside the releases .* and its adapter does not fit it: open raised"
    with pytest.raises(OutsideTable, match=says):
        answered(["stand-in", "open raised TypeError"], "lmdeploy==0.17.0")
    with pytest.raises(StandInError):
        answered(["stand-in", "open raised TypeError"], "lmdeploy==0.18.0")


def test_a_subject_that_cannot_be_made_of_a_release_outside_the_table_says_so() -> None:
    with pytest.raises(UnknownSubject, match=r"cannot be made: EngineError: .*; lmdeploy==0\.0\.1 lies outside the"):
        find("lmdeploy==0.0.1")()


def test_a_capability_that_is_not_known_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from kvproof.check import ManagerCan\ncan = ManagerCan(cachng=True)\n")
    said = r"argument 'cachng'.* \(?[dD]id you mean '?caching'?\?\)? \(.*mine.py:2\)$"  # from 3.13 on Python's own
    with pytest.raises(UnknownSubject, match=said):
        find(f"{path}:Adapter")
