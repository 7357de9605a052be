"""The Chromium of this machine, for the pictures of the documents and for the tests of the pages."""

import shutil
from typing import Any

NAMES = "chromium", "chromium-browser", "google-chrome", "chrome"
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def launch(driver: Any) -> Any:
    """A browser of Playwright's driver, without a window and without requests of its own."""
    return driver.chromium.launch(executable_path=PROGRAM, args=OPTIONS)
