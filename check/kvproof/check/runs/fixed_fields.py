"""What a hunt is told to keep to: `--fix NAME=VALUE`, fields of the configuration, and `--property ID`.

Where a field keeps something off, nothing is promised of it: the subject is claimed for as if it could not do it.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.manager import Capabilities
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.subject_lookup import did_you_mean
from kvproof.check.search.configurations import check_fixed
from kvproof.check.search.exhaustive.manager import config_of
from kvproof.check.search.suppression import FEATURE_DEFAULTS
from kvproof.spec.text.properties import SENTENCES

WORDS = {"true": True, "false": False, "none": None}
NEEDED = {  # the capability that a field makes use of
    "num_host_blocks": "swap",
    "watermark": "watermark",
    "window": "window",
    "caching": "caching",
    "lookahead": "lookahead",
    "chunked": "chunked",
    "group_size": "waiting_groups",
    "keys": "adapters",
    "images": "images",
    "cross": "cross",
    "kv_groups": "kv_groups",
}


def fixed_fields(said: Iterable[str]) -> dict[str, Any]:
    """The fields that are kept. Raises UsageError."""
    fixed: dict[str, Any] = {}
    for text in said:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--fix takes NAME=VALUE, such as caching=false; {text!r} was given")
        name = name.strip()
        fixed[name] = value.strip().split(",") if name == "kv_groups" else _value(value.strip())
    try:
        check_fixed(fixed)
    except ValueError as error:
        raise UsageError(f"--fix: {error}") from None
    return fixed


def wanted_properties(said: Iterable[str]) -> list[str]:
    """The properties that are hunted for, each once. Raises UsageError."""
    for name in said:
        if name not in SENTENCES:
            question = did_you_mean(name, list(SENTENCES))
            raise UsageError(f"--property: there is no property {name!r}{question}; there are {', '.join(SENTENCES)}")
    return list(dict.fromkeys(said))


def _value(text: str) -> Any:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_same(kept: Any, value: Any) -> bool:
    """Whether a field has the value that is kept; several are kept as a list."""
    return bool((tuple(kept) if isinstance(kept, list) else kept) == value)


class Narrowed:
    """A subject, with no capability that the kept fields leave without use."""

    def __init__(self, subject: Any, fixed: dict[str, Any]) -> None:
        self._subject = subject
        off = {
            NEEDED[name]: False
            for name, plain in FEATURE_DEFAULTS.items()
            if name in fixed and is_same(fixed[name], plain)
        }
        if len(fixed.get("kv_groups", ())) > 1:
            off["transfers"] = False  # which are judged with one group only
        self.capabilities: Capabilities = replace(subject.capabilities, **off)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


def agrees(scope: Scope, fixed: dict[str, Any]) -> bool:
    """Whether the scope has the configuration that is to be kept."""
    config = config_of(scope)
    return all(is_same(value, getattr(config, name)) for name, value in fixed.items())
