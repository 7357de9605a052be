"""What the texts of a command line name: a subject, fixed fields (`--fix NAME=VALUE`), properties (`--property ID`).

A field that is fixed at a value without the feature disables the feature: the subject is judged as if it did not have
the capability, so no property that needs it counts as checked.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvproof.check.oracle.level import LEVELS
from kvproof.check.protocol import features
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import STATE, Config, ManagerSubject, PromptKeys, size_of
from kvproof.check.protocol.own_property import is_property
from kvproof.check.protocol.store import LRU
from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.runs.errors import UsageError
from kvproof.check.search.configurations import BESIDE_NO_DRAFTS, EXCLUDING, check_fixed, settled
from kvproof.spec.text.properties import MEANINGS


def factory_of(
    name: str, isolation: bool | None = None, seconds: float | None = None
) -> tuple[Callable[[], ManagerSubject], ManagerSubject]:
    """The factory of the subject, and one subject that it made. Raises UsageError.

    isolation: whether the subject runs in a process of its own; None isolates every subject but the built-in ones.
    seconds: the budget of the run, which limits a call.
    """
    from kvproof.check.hosts.time_limit import Limits
    from kvproof.check.isolation.factory import factory_for
    from kvproof.check.subjects import UnknownSubject

    try:
        make = factory_for(name, isolation, Limits.within(seconds))
        return make, make()
    except UnknownSubject as error:
        raise UsageError(str(error), "subject") from error


WORDS = {"true": True, "false": False, "none": None}


def fixed_fields(options: Iterable[str]) -> dict[str, Any]:
    """The fixed fields and their values, from texts such as `caching=false`. Raises UsageError.

    They are fields of a configuration of any level; `require_fields_of` checks them when the subject is known.
    """
    fixed: dict[str, Any] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--fix takes NAME=VALUE, such as caching=false; {text!r} was given", "fix")
        name = name.strip()
        fixed[name] = value.strip().split(",") if name == "kv_groups" else _value(value.strip())
    kinds = [level.config for level in LEVELS]
    require_fields_of(next((kind for kind in kinds if fixed.keys() <= kind.__dataclass_fields__.keys()), Config), fixed)
    return fixed


def require_fields_of(kind: type[Config], fixed: dict[str, Any]) -> None:
    """Raise UsageError unless the fixed fields make a configuration of this kind."""
    try:
        check_fixed(fixed, kind)
    except ValueError as error:
        raise UsageError(f"--fix: {error}", _option_of(fixed, str(error))) from None


def _option_of(fixed: dict[str, Any], message: str) -> str:
    """The fixed field that a message is about, as `fix.caching`; `fix` if it names none of them, or several."""
    named = [name for name in fixed if re.search(rf"\b{re.escape(name)}\b", message)]
    return f"fix.{named[0]}" if len(named) == 1 else "fix"


def wanted_properties(names: Iterable[str]) -> list[str]:
    """The ids of the properties to hunt for, without repetitions. Raises UsageError for an id that does not exist."""
    for name in names:
        if not is_property(name):
            question = did_you_mean(name, list(MEANINGS))
            raise UsageError(f"--property: there is no property {name!r}{question}; there are {', '.join(MEANINGS)}")
    return list(dict.fromkeys(names))


def _value(text: str) -> Any:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


BESIDE_NO_CONNECTOR = "transfers", "num_host_blocks", "window", "local_chunk"  # a connector is judged without these


class Narrowed:
    """A subject without the capabilities whose features the fixed fields switch off."""

    def __init__(self, subject: Any, fixed: dict[str, Any]) -> None:
        self._subject = subject
        unused = [one for one in features.FEATURES if one.field in fixed and not one.uses(fixed[one.field])]
        off: dict[str, Any] = {one.capability: False for one in unused}
        off |= dict.fromkeys(_excluded(fixed, capabilities_of(subject)), False)
        groups = fixed.get("kv_groups", ())
        if groups and not any(entry.startswith(STATE) for entry in groups):
            off["states"] = False
        if groups and len({*map(size_of, groups)}) == 1:
            off["block_sizes"] = False
        if len(groups) > 1:
            off["transfers"] = False  # they are judged with one KV group only
        if fixed.get("connector"):
            off["transfers"] = False  # of a connector they are its own
        if fixed.get("connector") == "" or len(groups) > 1 or any(map(fixed.get, BESIDE_NO_CONNECTOR)):
            off["connectors"] = ()
        if fixed.get("speculative_tokens"):  # drafts are judged without these
            off |= {"connectors": (), "loads_in_step": False, "load_failures": (), "repeated_reports": False}
            if fixed.get("transfers"):
                off |= {"window": False, "local_attention": False, "kv_groups": False}
        elif fixed.get("speculative_tokens") == 0 or any(map(fixed.get, BESIDE_NO_DRAFTS)):
            off["speculative_tokens"] = 0
        if fixed.get("sessions"):  # they are judged without these
            off |= {"transfers": False, "connectors": (), "async_steps": 0, "speculative_tokens": 0, "lookahead": False}
        if fixed.get("load_failures") == "":
            off["load_failures"] = ()
        if fixed.get("max_loras") == 0 or fixed.get("keys") == PromptKeys.TOKENS:
            off["max_loras"] = False
        if fixed.get("replacement", LRU) != LRU:
            off["eviction"] = ""
        self.capabilities: Capabilities = replace(capabilities_of(subject), **off)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


def _excluded(fixed: dict[str, Any], capabilities: Capabilities) -> Iterator[str]:
    """The capabilities whose features no run with the fixed fields uses, because these exclude them."""
    for name in EXCLUDING:
        drawn = {**features.DEFAULTS, name: True, **fixed}
        if name not in fixed and not settled(drawn, capabilities, fixed)[name]:
            yield name


def agrees(config: Config, fixed: Mapping[str, Any]) -> bool:
    """Whether the configuration of a scope has every fixed value. A fixed tuple is given as a list."""
    return all(
        getattr(config, name) == (tuple(value) if isinstance(value, list) else value) for name, value in fixed.items()
    )
