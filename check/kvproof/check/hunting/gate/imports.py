"""Whether a state of a repository imports its own code, and what is put on the path so that it does.

A package of the repository may be installed, as a copy or as a link to the working tree. Then every state would import
the same code, and two hunts of it would say nothing of the change. So each name at the top of the tree is looked for
as an import does. What is found elsewhere is linked into a folder that comes first on the path, and looked for again.
A name of the standard library, or of a package that kvproof itself uses, is not put before it.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from kvproof.check.hosts.program import finished
from kvproof.check.runs.errors import UsageError

ROOTS = ("", "src", "python")  # where a repository keeps its packages
SECONDS_MAX = 60.0
LOOK = """
import importlib.util, json, os, sys
sys.path.append(os.getcwd())
found = {}
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    places = [] if spec is None else [*(spec.submodule_search_locations or ())] or [spec.origin]
    found[name] = [one for one in places if one and os.path.exists(one)]
json.dump(found, sys.stdout)
"""


def path_for(tree: Path, folder: Path, links: Path) -> str:
    """What the variable PYTHONPATH must be so that Python finds the packages of a tree in this tree.

    folder: the working folder. links: a folder that may be made. Raises UsageError if some are found elsewhere anyway.
    """
    before = os.environ.get("PYTHONPATH", "")
    own = _at_the_top(tree)
    if not (elsewhere := _found_elsewhere(own, tree, folder, before)):
        return before
    if ours := sorted(elsewhere.keys() & _used_by_kvproof()):
        raise UsageError(f"kvproof itself uses {', '.join(ours)}, so it cannot judge a change of it in this way")
    links.mkdir(parents=True, exist_ok=True)
    for name in elsewhere:
        link = links / own[name].name
        link.unlink(missing_ok=True)
        link.symlink_to(own[name])
    path = os.pathsep.join(filter(None, (str(links), before)))
    for name, place in _found_elsewhere(own, tree, folder, path).items():
        raise UsageError(
            f"`import {name}` finds {place}, and not {own[name]}: a hook of an installed package comes first. "
            "Uninstall the package, or install it as a copy"
        )
    return path


def _at_the_top(tree: Path) -> dict[str, Path]:
    """The modules and packages at the top of a tree, by name."""
    found: dict[str, Path] = {}
    for root in (tree / one for one in ROOTS):
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            name = path.stem if path.suffix == ".py" else path.name
            is_code = path.suffix == ".py" or (path / "__init__.py").is_file()
            if is_code and name.isidentifier() and name not in sys.stdlib_module_names:
                found.setdefault(name, path)
    return found


def _found_elsewhere(names: Mapping[str, Path], tree: Path, folder: Path, path: str) -> dict[str, str]:
    """The names that Python finds, and not in the tree, each with the place where."""
    command = [sys.executable, "-P", "-c", LOOK, *names]
    done = finished(command, SECONDS_MAX, {**os.environ, "PYTHONPATH": path}, folder=folder)
    if done.code:
        raise UsageError(f"{sys.executable} cannot say where it finds the packages of {tree}: {done.errors[-300:]}")
    places = msgspec.json.decode(done.output, type=dict[str, list[str]])
    return {name: found[0] for name, found in places.items() if found and not _is_in(found, tree)}


def _is_in(places: Iterable[str], tree: Path) -> bool:
    return all(Path(one).resolve().is_relative_to(tree) for one in places)


def _used_by_kvproof() -> set[str]:
    """The packages that this process has imported from where packages are installed, and kvproof."""
    named = {name.partition(".")[0]: module for name, module in list(sys.modules.items()) if "." not in name}
    files = {name: getattr(module, "__file__", None) or "" for name, module in named.items()}
    return {"kvproof"} | {
        name for name, file in files.items() if {"site-packages", "dist-packages"} & {*Path(file).parts}
    }
