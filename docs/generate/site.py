"""The hook of mkdocs: adds the generated pages, and leads links that leave `docs/` to where their targets are.

The documents are also read in the repository, where a link may point to any file. On the site, a link to a document of
the root becomes a link to its page, and any other link out of `docs/` becomes the name of its file.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

TREE = Path(__file__).parents[2]
sys.path[:0] = [str(TREE)]  # mkdocs loads this file by its path

from docs.generate import findings, properties, reference  # noqa: E402

from kvproof.check.hunting.corpus.record import read_all  # noqa: E402

ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
GENERATED: dict[str, Callable[[], str]] = {
    "reference/command-line.md": reference.command_line,
    "reference/configuration.md": reference.configuration,
    "reference/properties.md": properties.page,
    "reference/result.md": lambda: reference.file_format("result"),
    "reference/trace.md": lambda: reference.file_format("trace"),
    "reference/result.schema.json": lambda: reference.schema_text("result"),
    "reference/trace.schema.json": lambda: reference.schema_text("trace"),
}
RECORDS = "examples/corpus/"  # a record has a page on the site
BEHIND_OTHERS = "---\nsearch:\n  boost: 0.5\n---\n\n"  # so many pages would hide the others in a search
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs/`."""
    for path, make in GENERATED.items():
        files.append(File.generated(config, path, content=make()))
    for fault in read_all(findings.RECORDS):
        files.append(
            File.generated(config, f"findings/{fault.id}.md", content=BEHIND_OTHERS + findings.record_page(fault))
        )
    for name, path in ROOT_PAGES.items():
        files.append(File.generated(config, path, content=(TREE / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change the links that leave the folder."""
    source = page.file.src_uri
    folder = PurePosixPath() if source in ROOT_PAGES.values() else PurePosixPath("docs", source).parent
    return LINK.sub(lambda found: _link(found, folder), markdown)


def _link(found: re.Match[str], folder: PurePosixPath) -> str:
    text, target, anchor = found[1], found[2], found[3] or ""
    path = _normal(folder / target)
    if path in ROOT_PAGES and folder.parts[:1] == ("docs",):
        up = "../" * (len(folder.parts) - 1)
        return f"[{text}]({up}{ROOT_PAGES[path]}{anchor})"
    if folder.parts[:1] == ("docs",) and path.startswith("docs/"):
        return found[0]
    if path.startswith("docs/"):
        return f"[{text}]({path.removeprefix('docs/')}{anchor})"
    if path.startswith(RECORDS) and path.endswith(".toml"):
        return f"[{text}](findings/{PurePosixPath(path).stem}.md)"
    return ROOT_PAGES[path].join((f"[{text}](", f"{anchor})")) if path in ROOT_PAGES else text


def _normal(path: PurePosixPath) -> str:
    """The path without `..`, relative to the root of the repository."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return "/".join(parts)
