"""The wheel: what it contains and what it says of itself. Nothing is installed and nothing is downloaded."""

import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from kvproof.spec.extras import EXTRAS

TREE = Path(__file__).parents[1]
# Where the name of a module is not that of its distribution
DISTRIBUTIONS = {"prometheus_client": "prometheus-client", "z3": "z3-solver"}
NEEDED = {"hypothesis", "jinja2", "junitparser", "msgspec", "rich", "typer"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=TREE, check=True, capture_output=True, text=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def files_of(*folders: str) -> list[str]:
    """The files that git has, or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    found = subprocess.run(command, cwd=TREE, check=True, capture_output=True, text=True)
    return [name for name in found.stdout.splitlines() if (TREE / name).is_file()]


def test_the_wheel_has_the_files_of_all_roots_but_audit_and_the_examples_and_nothing_else(
    wheel: zipfile.ZipFile,
) -> None:
    roots = {re.sub(r"^\w+/", "", name) for name in files_of("spec", "impl", "models", "check", "reports")}
    examples = {f"kvproof/check/{name}" for name in files_of("examples")}
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == roots | examples


def test_a_plain_install_needs_no_package_of_an_extra_and_each_extra_has_its_modules(metadata: Message) -> None:
    needed: dict[str, set[str]] = {}
    for requirement in metadata.get_all("Requires-Dist", []):
        name = re.match(r"[\w-]+", requirement)
        extra = re.search(r"extra == '([\w-]+)'", requirement)
        assert name is not None
        needed.setdefault(extra[1] if extra else "", set()).add(name[0])
    assert needed[""] == NEEDED
    for named, modules in EXTRAS.items():
        assert needed[named] == {DISTRIBUTIONS.get(module, module) for module in modules}
    assert needed["all"] == needed["prove"] | needed["second-solver"] | needed["device"] | needed["watch"]


def test_the_description_of_the_package_has_no_link_that_only_works_in_the_repository(metadata: Message) -> None:
    description = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert [link for link in links if not link.startswith("https://")] == []
    assert "glossary (`docs/glossary.md`)" in description
    assert metadata["Author"] == "the kvproof maintainers"
