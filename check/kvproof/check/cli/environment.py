"""The environment variables that kvproof reads. One that is set and has no effect would be a false word.

A user who sets a variable counts on it: on the releases in the folder that it names being judged, or on tokens being
stored as digests. So a command ends with exit code 2 if a variable of kvproof has a wrong name or a value that means
nothing. `XDG_CACHE_HOME` names the folder of all caches; by its own specification a relative path is none.
"""

import os
import re
from collections.abc import Mapping

from kvproof.check.runs.errors import UsageError, did_you_mean
from kvproof.reports.address import ADDRESS

PREFIX = "KVPROOF_"
# Each variable with the values that it may have, as a pattern, and what a message calls them.
VARIABLES = {
    "KVPROOF_CACHE": (r"(?s:.*)", "a folder"),
    "KVPROOF_HOST": (r"(?s:.*)", "a name of this machine"),
    "KVPROOF_URL": (f"({ADDRESS.pattern})?", "an address that begins with https://"),
    "KVPROOF_DIGEST_KEY": (r"(?s:.+)", "a key; an empty one would store tokens as they are"),
    "KVPROOF_ANY_TORCH": (r"1?", "1"),
}
# Variables that kvproof sets for the processes that it starts, and those that name checkouts for its benchmarks.
OURS = (
    "KVPROOF_RECORD",
    "KVPROOF_RECORD_SHOWS_POOL",
    "KVPROOF_RECORD_DIGEST_KEY",
    "KVPROOF_RECORD_WATCHED",
    "KVPROOF_SHIPPED",
    "KVPROOF_STARTED",
    "KVPROOF_NANO_VLLM",
    "KVPROOF_MINI_SGLANG",
)
CACHES = "XDG_CACHE_HOME"


def require_effective(environment: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError if a variable of kvproof that is set would have no effect."""
    for name in sorted(environment):
        if name in VARIABLES and not re.fullmatch(VARIABLES[name][0], environment[name]):
            raise UsageError(f"the variable {name} is {environment[name]!r}; it is {VARIABLES[name][1]}, or unset")
        if name.startswith(PREFIX) and name not in VARIABLES and name not in OURS:
            text = f"kvproof reads no variable {name}{did_you_mean(name, VARIABLES)}; it reads {', '.join(VARIABLES)}"
            raise UsageError(f"{text}. Unset it: it would have no effect")
    if (folder := environment.get(CACHES)) and not os.path.isabs(folder):
        raise UsageError(f"the variable {CACHES} is {folder!r}, a relative path, which has no effect; make it absolute")
