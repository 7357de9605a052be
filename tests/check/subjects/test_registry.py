"""Subjects by name: the built-in ones, and what a user may write of his own."""

from pathlib import Path

import pytest

from kvproof.check.subjects.builtin import manager
from kvproof.check.subjects.registry import UnknownSubject, find, listed, name_of

OURS = ("kvproof", "kvproof-generation1", "kvproof-pool", "kvproof-scheduler")
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


def test_what_is_listed_can_be_named() -> None:
    names = [name for name, _ in listed()]
    assert names[: len(OURS)] == list(OURS)
    assert "vllm-v0" in names
    assert [find(name)().name for name in OURS] == list(OURS)


@pytest.mark.parametrize("form", ["{stem}:Adapter", "{name}:Adapter", "./{name}:Adapter", "{path}:Holder.make"])
def test_an_adapter_of_ones_own_is_found_by_module_or_by_file(module: Path, form: str) -> None:
    name = form.format(stem=module.stem, name=module.name, path=module)

    assert find(name)().name == "own"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kvprof", "there is no subject 'kvprof'; did you mean kvproof?"),
        ("vllm-v00==0.9.2", "did you mean vllm-v0?"),
        (
            "zzz",
            f"there are {', '.join(name for name, _ in listed())}, and module:factory or path/to/file.py:factory",
        ),
        ("kvproof==1", "kvproof takes no version"),
        ("vllm-v0==", "vllm-v0 takes a version after =="),
        (":make", "names no factory"),
        ("module:", "names no factory"),
        ("no_such_module:make", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("no/such/file.py:make", "there is no file no/such/file.py"),
        ("{stem}:Adaptor", "has no 'Adaptor'; did you mean Adapter?"),
        ("{stem}:Holder.mak", "has no 'mak'; did you mean make?"),
        ("{stem}:NUMBER", "NUMBER is no factory: it is int and cannot be called"),
    ],
)
def test_a_name_that_finds_nothing_says_what_could_be_meant(module: Path, name: str, said: str) -> None:
    with pytest.raises(UnknownSubject) as refused:
        find(name.format(stem=module.stem))

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("none", "what the factory returned is no subject: NoneType is no subject: it has no "),
        ("fails", "the subject cannot be made: OSError: no such engine"),
        ("leaves", "the subject cannot be made: SystemExit: 3"),
        ("needs", "the subject cannot be made: TypeError: needs() missing 1 required positional argument"),
    ],
)
def test_a_factory_that_gives_no_subject_is_one_clear_error(module: Path, factory: str, said: str) -> None:
    make = find(f"{module.name}:{factory}")

    with pytest.raises(UnknownSubject) as refused:
        make()

    assert said in str(refused.value)


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
    assert name_of(manager.make) == "kvproof.check.subjects.builtin.manager:make"
    assert name_of(lambda: None) is None


def test_a_factory_of_a_loose_file_is_named_by_the_file(module: Path) -> None:
    factory = type(find(f"{module.name}:Adapter")())

    assert name_of(factory) == f"{module.name}:Adapter"
