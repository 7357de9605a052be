"""The list under "What is trusted" in docs/trusted.md names every file that decides a verdict."""

import re
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
ROOTS = ("spec", "models", "check", "reports", "audit")

# What makes a file decide: it makes a finding, or it assigns one of the decided verdicts.
DECIDES = re.compile(r"\b(?:Finding|Refuted|Violation)\(|\bVerdict\.(?:PROVED|EXHAUSTED|NOT_REFUTED|REFUTED)\b")
# These only render or keep verdicts that were decided elsewhere.
RENDERERS = "terminal", "summary", "recorded_run", "run_page", "campaign_page", "evidence", "document"
RENDERS = {f"reports/kvproof/reports/{name}.py" for name in RENDERERS}


def trusted() -> list[str]:
    """The files and folders of the list; a bare file name lies in the folder of the file named before it."""
    text = (TREE / "docs/trusted.md").read_text(encoding="utf-8")
    section = text[text.index("## What is trusted") :]
    found: list[str] = []
    for row in re.findall(r"^\| [^|]+ \| ([^|]+) \|", section, re.MULTILINE)[1:]:
        folder = ""
        for name in re.findall(r"`([\w./]+)`", row):
            path = name if "/" in name else f"{folder}/{name}"
            folder = path.rstrip("/").rpartition("/")[0]
            found.append(path)
    return found


def test_every_file_that_decides_a_verdict_is_on_the_list() -> None:
    files = [path for root in ROOTS for path in sorted((TREE / root).rglob("*.py"))]
    deciding = {
        path.relative_to(TREE).as_posix() for path in files if DECIDES.search(path.read_text(encoding="utf-8"))
    } - RENDERS
    assert len(deciding) > 20
    assert {path for path in deciding if not path.startswith(tuple(trusted()))} == set()


def test_everything_on_the_list_exists() -> None:
    names = trusted()
    assert len(names) > 10
    assert [name for name in names if not (TREE / name).exists()] == []
