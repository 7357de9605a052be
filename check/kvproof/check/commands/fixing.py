"""`--fix NAME=VALUE`: fields of the configuration that every run of a hunt keeps."""

import json
from collections.abc import Iterable
from typing import Any

from kvproof.check.commands.guard import UsageError
from kvproof.check.configurations import check_fixed
from kvproof.check.explorer_subject import config_of
from kvproof.check.scopes import Scope

WORDS = {"true": True, "false": False, "none": None}


def fixed_fields(said: Iterable[str]) -> dict[str, Any]:
    """The fields that are kept. Raises UsageError."""
    fixed: dict[str, Any] = {}
    for text in said:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--fix takes NAME=VALUE, such as caching=false; {text!r} was given")
        fixed[name.strip()] = _value(value.strip())
    try:
        check_fixed(fixed)
    except ValueError as error:
        raise UsageError(f"--fix: {error}") from None
    return fixed


def _value(text: str) -> Any:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def agrees(scope: Scope, fixed: dict[str, Any]) -> bool:
    """Whether the scope has the configuration that is to be kept."""
    config = config_of(scope)
    return all(getattr(config, name) == value for name, value in fixed.items())
