"""Subjects of installed packages: they are named as kvproof's own are, and one that is wrong says so in one line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.isolation.factory import factory_for
from kvproof.check.runs.replay import Trust, UntrustedSubject
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.registry import find

PACKAGE = Path(__file__).parents[3] / "examples" / "subjects_package"


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "forty-line-subjects", "forty-lines-of-a-package = forty_line_subjects:Adapter")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(PACKAGE))


def installed(folder: Path, package: str, *entries: str) -> None:
    """Metadata of a package, as an installation writes them."""
    metadata = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join(["[kvproof.subjects]", *entries, ""]))


def test_the_template_declares_the_subject_that_its_module_has() -> None:
    assert 'forty-lines-of-a-package = "forty_line_subjects:Adapter"' in (PACKAGE / "pyproject.toml").read_text()


def test_a_subject_of_a_package_is_listed_and_judged_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    listed = CliRunner().invoke(app, ["subjects"]).stdout
    assert "forty-lines-of-a-package  plugin     of forty-line-subjects 1.0\n" in listed
    make = factory_for("forty-lines-of-a-package")
    assert make().name == "forty-lines-of-a-package"
    arguments = ["hunt", "--subject", "forty-lines-of-a-package", "--effort", "300", "--seed", "1"]
    done = CliRunner().invoke(app, arguments)
    assert "forty-lines-of-a-package is not refuted" in done.output


def test_a_release_is_given_to_what_makes_the_subject(tmp_path: Path) -> None:
    (tmp_path / "released.py").write_text("def make(release): raise ValueError(f'made of {release}')\n")
    installed(tmp_path, "released", "released = released:make")
    with pytest.raises(UnknownSubject, match=r"made of 1\.2"):
        find("released==1.2")()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("broken = no_such_module:Adapter", "broken of other 1.0: no_such_module:Adapter cannot be imported: Module"),
        ("broken = forty_line_subjects:Nothing", "broken of other 1.0: forty_line_subjects:Nothing cannot be imported"),
        ("broken = forty_line_subjects:__doc__", "is no function or class that makes a subject"),
        ("vllm-v1 = forty_line_subjects:Adapter", ""),
        ("kvproof-mine = forty_line_subjects:Adapter", "cannot be used: this name is kvproof's own"),
        ("Broken_1 = forty_line_subjects:Adapter", "cannot be used: a name has small letters"),
        (
            "forty-lines-of-a-package = forty_line_subjects:Adapter",
            "cannot be used: several packages offer it: forty-line-subjects 1.0, other 1.0",
        ),
    ],
)
def test_a_plugin_that_is_wrong_says_so_in_one_line(tmp_path: Path, entry: str, said: str) -> None:
    installed(tmp_path, "other", entry)
    name = entry.partition(" ")[0]
    if not said:  # kvproof's own subject of this name is taken
        assert "cannot be used: this name is kvproof's own" in CliRunner().invoke(app, ["subjects"]).stdout
        return
    with pytest.raises(UnknownSubject) as error:
        find(name)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_name_that_is_nearly_that_of_a_plugin_is_suggested() -> None:
    with pytest.raises(UnknownSubject, match="did you mean forty-lines-of-a-package"):
        find("forty-lines-of-package")


def test_a_trace_does_not_choose_the_code_of_a_plugin() -> None:
    with pytest.raises(UntrustedSubject):
        Trust().subject_of(Path("trace.json"), "forty-lines-of-a-package")
    assert Trust(is_total=True).subject_of(Path("trace.json"), "forty-lines-of-a-package")
