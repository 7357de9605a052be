"""What adapters play of an engine, and whether it is in another release what they were written for."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvproof.check.subjects import replaced
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.loading.download import KNOWN, Engine
from kvproof.check.subjects.loading.functions import functions_in
from kvproof.check.subjects.registry import NAMED, outside_table
from kvproof.check.subjects.replaced import Replaced, Table, changed, sentence, table_of
from kvproof.check.subjects.replaced.__main__ import written

FILE = "vllm/v1/core/kv_cache_manager.py"
LOOP = '''
class Loop:
    """The loop."""

    def step(self):
        """One step."""
        # what it does
        return self.schedule()

    def stop(self):
        return None
'''


def release(folder: Path, version: str, text: str) -> Engine:
    file = folder / f"vllm-{version}" / FILE
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return Engine("vllm", version, folder / f"vllm-{version}")


def digest(folder: Path, version: str, text: str, name: str = "Loop.step") -> str:
    return functions_in(release(folder, version, text).folder / FILE)[name].digest


@pytest.mark.parametrize(
    "text",
    [
        LOOP.replace("One step.", "Another sentence."),
        LOOP.replace("# what it does", "# in other words\n\n        # and more"),
        "if True:\n" + "".join(f"    {line}\n" for line in LOOP.splitlines()),
        LOOP.replace("return None", "return 1"),
    ],
    ids=["docstring", "comments", "indentation", "another function"],
)
def test_what_is_no_code_of_a_function_does_not_change_its_digest(tmp_path: Path, text: str) -> None:
    assert digest(tmp_path, "1", text) == digest(tmp_path, "2", LOOP)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.schedule()", "self.schedule(1)"),
        ("def step(self)", "def step(self, wait=True)"),
        ("    def step", "    @once\n    def step"),
    ],
    ids=["body", "signature", "decorator"],
)
def test_code_of_a_function_changes_its_digest(tmp_path: Path, old: str, new: str) -> None:
    assert digest(tmp_path, "1", LOOP.replace(old, new)) != digest(tmp_path, "2", LOOP)


def test_a_class_changes_with_its_methods(tmp_path: Path) -> None:
    assert digest(tmp_path, "1", LOOP.replace("None", "1"), "Loop") != digest(tmp_path, "2", LOOP, "Loop")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """The loop in releases 1 and 2, another one from 3 on, and a function that 3 does not have any more."""
    first, second = digest(tmp_path / "a", "1", LOOP), digest(tmp_path / "a", "3", LOOP.replace("schedule", "run"))
    stop = digest(tmp_path / "a", "4", LOOP, "Loop.stop")
    found = Table(
        [],
        [
            Replaced(FILE, "Loop.step", ["vllm-v1"], {"1": first, "3": second}),
            Replaced(FILE, "Loop.stop", ["vllm-v1"], {"1": stop, "3": ""}),
        ],
    )
    monkeypatch.setattr(replaced, "table_of", lambda engine: found)
    return found


@pytest.mark.usefixtures("table")
def test_a_release_is_compared_with_the_one_that_the_adapter_was_written_for(tmp_path: Path) -> None:
    folder = release(tmp_path, "2", LOOP).folder
    assert [*changed("vllm", "vllm-v1", "2", folder)] == []
    assert [*changed("vllm", "vllm-v1", "3", folder)] == [f"Loop.step ({FILE}:5)", f"Loop.stop ({FILE}:10)"]
    assert [*changed("vllm", "vllm-v1-pool", "3", folder)] == []


@pytest.mark.usefixtures("table")
def test_a_function_that_is_gone_is_said_to_be_not_there(tmp_path: Path) -> None:
    folder = release(tmp_path, "5", LOOP.replace("def stop", "def end")).folder
    assert [*changed("vllm", "vllm-v1", "1", folder)] == [f"Loop.stop ({FILE}), which is not there"]


@pytest.mark.usefixtures("table")
def test_a_message_says_what_has_changed_or_that_nothing_has(tmp_path: Path) -> None:
    folder = release(tmp_path, "2", LOOP).folder
    assert sentence("vllm", "vllm-v1", "2", folder) == "what its adapter plays of the engine is as in 2"
    assert "not as in 3, so read what has changed: Loop.step" in sentence("vllm", "vllm-v1", "3", folder)
    assert sentence("vllm", "vllm-v1-pool", "3", folder) == ""
    (folder / FILE).write_text("def step(:")
    functions_in.cache_clear()
    assert "cannot be compared with 2" in sentence("vllm", "vllm-v1", "2", folder)


@pytest.mark.usefixtures("table")
def test_a_run_of_a_newer_release_or_of_a_checkout_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path))
    monkeypatch.setitem(NAMED, "vllm-v1", replace(NAMED["vllm-v1"], releases=("1", "3")))
    folder = release(tmp_path, "4", LOOP).folder
    assert "was judged with (1 to 3); its adapter plays code" in outside_table("vllm-v1==4")
    assert "driven as release 2 of vllm; what its adapter plays of the engine is as in 2" in outside_table(
        f"vllm-v1==2@{folder}"
    )
    assert outside_table("vllm-v1==2") == ""
    assert (
        outside_table("vllm-v1==5")
        == "vllm-v1==5 lies outside the releases of vllm that vllm-v1 was judged with (1 to 3)"
    )


@pytest.mark.usefixtures("table")
def test_the_digests_are_written_with_the_first_release_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NAMED, "vllm-v1", replace(NAMED["vllm-v1"], releases=("1", "9")))
    texts = [LOOP, LOOP, LOOP.replace("schedule", "run").replace("def stop", "def end"), ""]
    text = written("vllm", [release(tmp_path, str(n), one) for n, one in enumerate(texts, 1)])
    (known,) = (row for row in replaced.table_of("vllm").replaced if row.name == "Loop.step")
    assert [line for line in text.splitlines() if " = " in line and line[0] == '"'] == [
        f'"1" = "{known.digests["1"]}"',
        f'"3" = "{known.digests["3"]}"',
        '"4" = ""',
        f'"1" = "{replaced.table_of("vllm").replaced[1].digests["1"]}"',
        '"3" = ""',
    ]


@pytest.mark.parametrize("engine", KNOWN)
def test_every_row_of_a_table_names_subjects_of_the_engine_and_has_a_digest(engine: str) -> None:
    for row in table_of(engine).replaced:
        assert {NAMED[one].engine for one in row.subjects} == {engine}, row.name
        assert any(row.digests.values()), row.name


def test_a_table_speaks_of_every_subject_that_has_releases() -> None:
    """What the adapter of an allocator plays is no function, but the order of its calls."""
    named = {one for engine in KNOWN for row in table_of(engine).replaced for one in row.subjects}
    assert {row.name for row in NAMED.values() if row.releases} - named == {"lmcache-allocator"}


@pytest.mark.engine
@pytest.mark.parametrize("subject", [row.name for row in NAMED.values() if row.releases])
def test_the_newest_release_of_a_subject_is_as_its_table_says(subject: str) -> None:
    row = NAMED[subject]
    assert row.releases is not None
    folder = download.add(f"{row.engine}=={row.releases[1]}")
    assert [*changed(row.engine, subject, row.releases[1], folder)] == []
