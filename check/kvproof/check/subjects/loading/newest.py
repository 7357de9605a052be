"""The newest release of an engine that the package index offers, asked by pip as `download` does."""

import re
import sys

from kvproof.check.hosts.program import finished
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.loading.download import KNOWN, reason

OPTIONS = ("--no-input", "--no-color", "--disable-pip-version-check")
SECONDS = 120.0
NEWEST = re.compile(r"^(?P<name>\S+) \((?P<version>[^)\s]+)\)$", re.MULTILINE)


def newest_release(engine: str) -> str:
    """The version of the newest release, without those before a release. Raises EngineError."""
    package = KNOWN[engine].package
    try:
        done = finished(
            (sys.executable, "-P", "-m", "pip", "index", "versions", *OPTIONS, "--", package),
            SECONDS,
            in_other_encoding="replace",
        )
    except (OSError, TimeoutError) as error:
        raise EngineError(f"pip does not say which releases {engine} has: {error}") from error
    found = NEWEST.search(done.output)
    if done.code or found is None:
        raise EngineError(reason(package, done.output + done.errors))
    return found["version"]
