"""Subjects of installed packages: entry points of the group `kvproof.subjects`, each with the name of its subject.

The entry point names a function or class without arguments that returns the subject; with NAME==RELEASE it gets the
release. What a package offers is read from its metadata, and its code runs only if its subject is named.
"""

import importlib.metadata
import re
from collections import Counter
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint
from typing import Any

from kvproof.check.hosts.interrupt import is_from_outside
from kvproof.check.protocol.finding import error_text
from kvproof.check.subjects import UnknownSubject
from kvproof.spec.trace import OURS

GROUP = "kvproof.subjects"
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def plugins() -> dict[str, EntryPoint]:
    """The subjects that installed packages offer, by name, in the order of their names."""
    found = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda one: one.name)
    return {one.name: one for one in found}


def package_of(plugin: EntryPoint) -> str:
    """The name and version of the package that offers a subject."""
    return "?" if plugin.dist is None else f"{plugin.dist.name} {plugin.dist.version}"


def fault_of(name: str, known: Collection[str]) -> str:
    """Why a plugin's subject cannot be named; empty if it can. known: the names of kvproof's own table."""
    if NAME.fullmatch(name) is None:
        return "a name has small letters, digits and single hyphens"
    if name in known or name.partition("-")[0] == OURS:
        return "this name is kvproof's own"
    times = Counter(one.name for one in importlib.metadata.entry_points(group=GROUP))
    packages = [package_of(one) for one in importlib.metadata.entry_points(group=GROUP) if one.name == name]
    return f"several packages offer it: {', '.join(sorted(packages))}" if times[name] > 1 else ""


def plugin_factory(plugin: EntryPoint, release: str, known: Collection[str]) -> Callable[[], Any]:
    """What makes the subject of a plugin. Raises UnknownSubject if it cannot be named or imported."""
    context = f"{plugin.name} of {package_of(plugin)}"
    if fault := fault_of(plugin.name, known):
        raise UnknownSubject(f"{context} cannot be used: {fault}")
    try:
        found = plugin.load()
    except BaseException as error:
        if is_from_outside(error):
            raise
        what = f"{type(error).__name__}: {error_text(error)}"
        raise UnknownSubject(f"{context}: {plugin.value} cannot be imported: {what}") from error
    if not callable(found):
        raise UnknownSubject(f"{context}: {plugin.value} is no function or class that makes a subject")
    return (lambda: found(release)) if release else found
