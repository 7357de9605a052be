"""The address at which kvproof is published, as far as it is known.

Only those who publish kvproof know it. GitHub's runner knows the repository of an action that it runs, and action.yml
passes it on in `KVPROOF_URL`. An installed package knows the `[project.urls]` that it was built with.
"""

import functools
import importlib
import os
import re

VARIABLE = "KVPROOF_URL"
LABELS = ("source", "repository", "homepage", "documentation")  # of an address in `[project.urls]`, the best first
ADDRESS = re.compile(r"https?://[\w.:-]+(/[\w./~%-]*)?")


def address() -> str:
    """The address of the repository or of the documentation; empty if it is not known."""
    given = os.environ.get(VARIABLE, "")
    return given if ADDRESS.fullmatch(given) else _of_the_package()


@functools.cache
def _of_the_package() -> str:
    metadata = importlib.import_module("importlib.metadata")  # its import takes longer than the rest
    try:
        entries = metadata.metadata("kvproof").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # the sources are on the path, and nothing is installed
        return ""
    urls = {label.strip().lower(): url.strip() for label, _, url in (entry.partition(",") for entry in entries)}
    return next((urls[label] for label in LABELS if ADDRESS.fullmatch(urls.get(label, ""))), "")
