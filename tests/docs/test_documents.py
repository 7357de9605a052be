"""The documents: every command that a page shows exists, every output is what was printed, every link works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from docs.generate import chromium, diagrams, gpu, properties, reference
from docs.generate.commands import (
    Command,
    blocks_without_reason,
    commands,
    differences,
    environment,
    needs_an_engine,
    reason_not_to_run,
    shows,
)
from docs.generate.prepared import BLOCKS_NOT_RUN, FRAMES, NOT_RUN, PREPARED
from docs.generate.property_pictures import PICTURES, picture

import kvproof.check
from kvproof.check.cli.app import app
from kvproof.spec.text.properties import MEANINGS

TREE = Path(__file__).parents[2]
DOCS = TREE / "docs"
ROOT_PAGES = [TREE / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
SIGNATURES = DOCS / "reference" / "python.md"  # its blocks are no code to be run
PAGES = sorted([*ROOT_PAGES, *(page for page in DOCS.rglob("*.md") if page != SIGNATURES)])
LONG = [pytest.mark.long, pytest.mark.timeout(7_200)]
ENGINE = [pytest.mark.engine, pytest.mark.timeout(7_200)]
QUICK = "index.md"  # the default tests run it; it shows what the README shows of a hunt
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def name_of(page: Path) -> str:
    """Relative to docs/."""
    return Path(os.path.relpath(page, DOCS)).as_posix()


def shown(page: Path) -> list[Command]:
    """The commands of a page that are run."""
    found = commands(name_of(page), page.read_text(encoding="utf-8"))
    return [one for one in found if one.command and not reason_not_to_run(name_of(page), one.command)]


WITHOUT_ENGINES = [page for page in PAGES if any(not needs_an_engine(one.command) for one in shown(page))]
WITH_ENGINES = [page for page in PAGES if any(needs_an_engine(one.command) for one in shown(page))]


@pytest.mark.parametrize(
    ("page", "engines"),
    [
        *[pytest.param(name_of(page), False, marks=[] if name_of(page) == QUICK else LONG) for page in WITHOUT_ENGINES],
        *[pytest.param(name_of(page), True, marks=ENGINE) for page in WITH_ENGINES],
    ],
)
def test_a_page_shows_what_its_commands_print(page: str, engines: bool, tmp_path: Path) -> None:
    document = (DOCS / page).read_text(encoding="utf-8")
    assert list(differences(page, document, tmp_path, environment(), engines)) == []


def test_what_is_prepared_and_what_is_not_run_is_of_commands_that_a_page_shows() -> None:
    texts = {name_of(page): list(commands(name_of(page), page.read_text(encoding="utf-8"))) for page in PAGES}
    unknown = [
        (page, begin)
        for page, reasons in NOT_RUN.items()
        for begin in reasons
        if not any(one.command.startswith(begin) for one in texts[page])
    ]
    assert unknown == []
    assert {page for page in PREPARED if not texts[page]} == set()


def test_every_block_of_a_page_is_run_or_has_a_reason_why_not() -> None:
    texts = {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}
    assert {page: lines for page, text in texts.items() if (lines := blocks_without_reason(page, text))} == {}
    named = [(page, begin) for of_pages in (FRAMES, BLOCKS_NOT_RUN) for page in of_pages for begin in of_pages[page]]
    assert [(page, begin) for page, begin in named if f"```\n{begin}" not in unnamed(texts[page])] == []


def unnamed(document: str) -> str:
    """The document with the languages of its blocks left out."""
    return re.sub(r"^```\w+", "```", document, flags=re.M)


def test_a_file_is_written_a_command_sees_the_exit_code_before_it_and_a_wrong_output_is_reported(
    tmp_path: Path,
) -> None:
    document = '```text title="a"\nx\n```\n\n```\n$ cat a; exit 3\nx\n$ echo $?\n3\n$ echo 1\n2\n```\n'
    document += "\n```sh\nexit 2\ntrue\n```\n"
    assert list(differences("", document, tmp_path, dict(os.environ))) == [("echo 1", "1\n"), ("exit 2", "")]


@pytest.mark.parametrize(
    ("output", "is_shown"),
    [
        ("a\nb\nc\n", True),
        ("a\n", False),
        ("a\n…\n", True),
        ("…\nc…\n", True),
        ("…\nc\n…\na\n", False),
        ("…\nd\n", False),
        ("a\nb…\nc\n", True),
        ("a\nb\nc\n…\n", True),
        ("a\n  …\nc\n", True),
    ],
)
def test_a_line_of_dots_stands_for_any_lines(output: str, is_shown: bool) -> None:
    assert shows(output, "a\nb\nc\n") is is_shown


def test_every_option_that_a_document_shows_exists() -> None:
    known = {
        name: {"--help", *(option for one in command.params for option in (*one.opts, *one.secondary_opts))}
        for name, command in reference.all_commands(typer.main.get_command(app))
    }
    wrong, num_checked = [], 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        inline = (" ".join(span.split()) for span in re.findall(r"`(kvproof [a-z][^`]*)`", text))
        for line in (*re.findall(r"^(?: {4}|\$ )?(kvproof [a-z].*)", text, re.M), *inline):
            command = re.sub(r"\"[^\"]*\"", "", line).partition(" -- ")[0].partition("#")[0].partition("&&")[0]
            words = command.split()
            name = next((one for one in (" ".join(words[:3]), " ".join(words[:2])) if one in known), None)
            if name not in (None, "kvproof config"):  # which takes the options of every command
                num_checked += 1
                wrong += [f"{page.name}: {line}" for option in OPTION.findall(command) if option not in known[name]]
    assert wrong == []
    assert num_checked > 40


def test_the_generated_pages_have_every_command_property_field_and_name() -> None:
    page = reference.command_line()
    assert {"## kvproof verify", "## kvproof device compare", "## kvproof baseline accept"} <= set(page.splitlines())
    assert "`--effort" in page
    sections = properties.page(with_planted=False).split("\n## ")[1:]
    without_run = {section.partition("\n")[0] for section in sections if "\n    ✗ " not in section}
    assert without_run == {*properties.PLANTED, "exclusive-writer"}
    assert list(PICTURES) == list(MEANINGS) == [section.partition("\n")[0] for section in sections]
    assert '<span class="box wrong"><i>wrong: </i>1</span>' in picture("refcount-exact")
    assert "vllm-v0==0.3.3" in "".join(sections)
    assert "| `trusted_subjects` | list of string |" in reference.configuration()
    assert "## Check" in reference.file_format("result")
    assert "| `operations` |" in reference.file_format("trace")
    names = [f"## {name}" for name in kvproof.check.HOMES]
    committed = SIGNATURES.read_text(encoding="utf-8")
    assert names == re.findall("^## .*", reference.python_names(), re.M) == re.findall("^## .*", committed, re.M)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The pages of the site, which is built as `make docs` builds it."""
    pytest.importorskip("material", reason="it is in the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=TREE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(folder.rglob("*.html"))


@pytest.mark.long
def test_the_site_has_no_broken_link_and_no_page_of_it_needs_another_host(site: list[Path]) -> None:
    assert len(site) > 30
    (properties_page,) = (page for page in site if page.stem == "properties")
    assert properties_page.read_text(encoding="utf-8").count("✗") == len(MEANINGS)  # each one has a run that breaks it
    fetched = re.compile(r"<(?:script|img|iframe)[^>]* src=\"?http|<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*http")
    assert [page.name for page in site if fetched.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.browser
@pytest.mark.timeout(900)  # it builds the site
@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no Chromium on this machine")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_of_the_site_fits_a_narrow_window_and_asks_no_other_host(site: list[Path], scheme: str) -> None:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    wide, requests = [], []
    with driver.sync_playwright() as started:
        browser = chromium.launch(started)
        tab = browser.new_page(viewport={"width": 360, "height": 800}, color_scheme=scheme)
        tab.on("request", lambda request: requests.append(request.url))
        for page in site:
            tab.goto(page.as_uri())
            if tab.evaluate("document.documentElement.scrollWidth") > 360:
                wide.append(page.name)
        browser.close()
    assert wide == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.browser
@pytest.mark.timeout(900)  # it builds the site
@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no Chromium on this machine")
def test_a_search_finds_the_page_of_a_word_without_a_server(site: list[Path]) -> None:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    (home,) = (page for page in site if page.name == "index.html" and (page.parent / "why.html").exists())
    with driver.sync_playwright() as started:
        browser = chromium.launch(started)
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.goto(home.as_uri())
        tab.locator("input[name=query]").click()
        tab.keyboard.type("recording tokens")
        first = tab.locator(".md-search-result__item a").first
        first.wait_for(timeout=60_000)
        found = first.get_attribute("href") or ""
        browser.close()
    assert "/recording.html" in found


def test_the_tables_of_gpus_are_those_of_their_result_documents() -> None:
    assert set(gpu.MACHINES) == {folder.name for folder in (DOCS / "gpu").iterdir() if folder.is_dir()}
    assert gpu.PAGE.read_text(encoding="utf-8") == gpu.page(), "write it with `python -m docs.generate.gpu`"


def test_the_drawings_are_those_that_their_program_writes_and_each_text_lies_in_its_drawing() -> None:
    for name, drawing in diagrams.drawings().items():
        assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == drawing, "python -m docs.generate.diagrams"
        (width,) = map(int, re.findall(r'^<svg [^>]* width="(\d+)"', drawing))
        texts = re.findall(r'<text x="(\d+)" y="\d+" font-size="(\d+)"[^>]*>([^<]*)<', drawing)
        ends = [int(x) + 0.6 * int(size) * len(text) for x, size, text in texts]
        assert max(ends) <= width - diagrams.MARGIN + 1, name
