"""`kvproof.toml` in the working folder: what a repository says about its runs of kvproof.

    trusted_subjects = ["tests/adapter.py:*"]   # code that a trace may name, see `runs/trust.py`

    [[known]]                                   # findings that do not fail a run, see `runs/known_findings.py`
    ...

An unknown key is an error, because it would have no effect.
"""

import sys
from pathlib import Path
from typing import Any

from kvproof.reports.document import DocumentError, read_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path("kvproof.toml")
KNOWN, TRUSTED = "known", "trusted_subjects"
KEYS = (KNOWN, TRUSTED)
BYTES_MAX = 1 << 20


class ConfigurationError(DocumentError):
    """The configuration file cannot be used; the message says why."""


def configuration(path: Path) -> dict[str, Any]:
    """The keys of the file, of which only the names are checked. Raises DocumentError, or its ConfigurationError."""
    data = read_bytes(path, BYTES_MAX)
    try:
        found = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: what is not TOML, not UTF-8, or a number too long
        raise ConfigurationError(f"{path} is not TOML: {error}") from error
    foreign = sorted(found.keys() - set(KEYS))
    if foreign:
        raise ConfigurationError(f"{path}: there is no key {foreign[0]!r}; there are {' and '.join(KEYS)}")
    return found


def trusted_subjects(folder: Path) -> tuple[str, ...]:
    """The patterns under `trusted_subjects` in the folder's `kvproof.toml`, if there. Raises ConfigurationError."""
    path = folder / FILE
    if not path.is_file():
        return ()
    found = configuration(path).get(TRUSTED, [])
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise ConfigurationError(f'{path}: {TRUSTED} must be a list of texts, such as ["tests/adapter.py:*"]')
    return tuple(found)
