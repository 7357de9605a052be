"""The extras of the distribution: packages that only some commands need, so that judging a manager needs few of them.

`pip install 'kvproof[prove]'` installs an extra. A command that needs one calls `require_extra` before it imports
anything of it; a judge that can be left out asks `reason_missing`, and reports the answer.
"""

from importlib.util import find_spec

# The modules of each extra, as pyproject.toml installs them.
EXTRAS = {
    "prove": ("z3",),
    "second-solver": ("z3", "cvc5"),
    "device": ("numpy", "torch", "matplotlib"),
    "gpu": ("numpy", "torch", "matplotlib", "triton"),
    "ray": ("ray",),
    "watch": ("prometheus_client",),
}


class MissingExtra(ImportError):
    """A package is not installed. The message names the extra, and the command that installs it."""


def is_installed(module: str) -> bool:
    """Whether the module can be found; it is not imported."""
    return find_spec(module) is not None


def extra_with(module: str) -> str:
    """The first extra that installs the module; empty if none does."""
    return next((extra for extra, modules in EXTRAS.items() if module in modules), "")


def not_installed(what: str, *modules: str, extra: str = "") -> str:
    """One sentence: `what` needs these modules, and how to install them. extra: by default, the first module's."""
    are = "are" if len(modules) > 1 else "is"
    command = f"pip install 'kvproof[{extra or extra_with(modules[0])}]'"
    return f"{what} needs {', '.join(modules)}, which {are} not installed: {command}"


def reason_missing(extra: str, what: str) -> str:
    """One sentence that says which modules of the extra `what` lacks and how to install them; empty if none."""
    missing = [module for module in EXTRAS[extra] if not is_installed(module)]
    return not_installed(what, *missing, extra=extra) if missing else ""


def require_extra(extra: str, what: str) -> None:
    """Raise MissingExtra if `what` lacks a module of the extra."""
    reason = reason_missing(extra, what)
    if reason:
        raise MissingExtra(reason)
