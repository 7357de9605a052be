"""Draw the pictures of the documentation: the page of a run, and a step of the explorer at each level.

Run it with `make pictures`. It needs Chromium, and the folder into which it writes.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from subprocess import run

from playwright.sync_api import Browser, sync_playwright

from kvproof.check.counterexample.store import draw, make_trace, save_trace
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.registry import find

CHROMIUM = "/usr/bin/chromium"
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, NARROW = (1280, 900), (390, 844)
EXAMPLES = {"manager": "forty_lines_broken.py:Adapter", "store": "forty_line_store_broken.py:Store"}
SCHEDULED = [
    ("add", 1, (1,), (0, 0, 0), 3),
    ("add", 2, (2,), (1, 1), 3),
    ("schedule",),
    ("launch", (5, 6)),
    ("complete", (5, 6)),
    ("schedule",),
    ("launch", (7, 8)),
    ("complete", (7, 8)),
    ("schedule",),
]
TAKEN = [("take", 1, 2), ("take", 2, 3), ("take", 1, 1)]


def pages(folder: Path) -> dict[str, Path]:
    """The page of each level: of a failing run, or of a run that is not refuted."""
    found = {}
    shutil.copytree("examples", folder / "examples")
    for level, subject in EXAMPLES.items():
        options = ["--seed", "1", "--effort", "20000", "--stop-at-first", "--out", level]
        command = ["kvproof", "hunt", "--subject", f"examples/{subject}", *options]
        run(command, check=False, capture_output=True, cwd=folder)
        found[level] = folder / level / "index.html"
    scheduled = Counterexample(SchedulerConfig(block_size=2, num_gpu_blocks=6), SCHEDULED, Finding("progress", "none"))
    taken = Counterexample(PoolConfig(num_gpu_blocks=8), TAKEN, Finding("refcount-exact", "none"))
    for level, make, example in (("scheduler", find("kvproof-scheduler"), scheduled), ("pool", OwnPool, taken)):
        trace = make_trace(f"kvproof-{level}", example, "walker", 1, make=make)
        found[level] = draw(save_trace(folder, trace), trace, make)
    return found


def picture(browser: Browser, page: str, path: Path, size: tuple[int, int], scheme: str, part: str = "") -> None:
    """Write a picture of a page, or of the part of it that a selector names."""
    width, height = size
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    tab.goto(page)
    tab.add_style_tag(content=".bar { position: static !important }")
    tab.wait_for_timeout(200)
    if part:
        tab.locator(part).first.screenshot(path=path)
    else:
        tab.screenshot(path=path)
    tab.close()


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        for level, page in pages(Path(scratch)).items():
            for scheme in ("light", "dark"):
                address = page.as_uri()
                if level == "manager":
                    picture(browser, address, folder / f"run-{scheme}-wide.png", WIDE, scheme)
                    picture(browser, address, folder / f"run-{scheme}-narrow.png", NARROW, scheme)
                picture(browser, address, folder / f"{level}-{scheme}-wide.png", WIDE, scheme, ".explorer")
                picture(browser, address, folder / f"{level}-{scheme}-narrow.png", NARROW, scheme, ".explorer")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
