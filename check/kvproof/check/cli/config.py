"""`kvproof config`: what is in force, and where each value comes from.

An environment variable of kvproof that is set and has no effect would be a false word. A user who sets a variable
counts on it: on the releases in the folder that it names being judged, or on tokens being stored as digests. So a
command ends with exit code 2 if a variable of kvproof has a wrong name or a value that means nothing. `XDG_CACHE_HOME`
names the folder of all caches; by its own specification a relative path is none.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.reports.address import ADDRESS

if TYPE_CHECKING:
    from kvproof.check.runs.configuration import ConfigurationFile

CONFIGURED = ("verify", "hunt")  # commands that take their options from the configuration of the repository
WITH_HISTORY = ("explore", "device", "prove", "history", "compare")  # commands that take only `history` from it
ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}

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
    "KVPROOF_OTHER_MANAGERS",
)
CACHES = "XDG_CACHE_HOME"


def configure(context: typer.Context) -> None:
    """Give a command the options that the configuration of the repository names; the command line wins over them.

    A command takes the keys that are its own options. Exits with 2 if the configuration cannot be used.
    """
    command = context.invoked_subcommand
    if command in CONFIGURED:
        with error_boundary():
            from kvproof.check.runs.configuration import trusted_subjects

            context.obj = _found()
            context.default_map = _options(context, command, context.obj)
            trusted_subjects(context.obj)
    elif command in WITH_HISTORY and not context.resilient_parsing:
        with error_boundary():
            context.obj = found = _found()
            history = None if found is None else found.options.get("history")
            context.default_map = {command: {"history": history}} if history is not None else {}


def _found() -> "ConfigurationFile | None":
    """The configuration in force; None if there is none. Raises DocumentError, and UsageError for an unknown judge.

    Only `verify` takes its judges from there, but nobody should learn of a wrong name when that runs at last.
    """
    from kvproof.check.runs.configuration import find_configuration

    found = find_configuration()
    for option in ("judges", "require"):
        if found is not None and (asked := found.options.get(option)):
            from kvproof.check.runs.judges import require_judges

            try:
                require_judges(asked, option)
            except UsageError as error:
                raise UsageError(f"{found.place(option)}: {error}") from error
    return found


def _options(context: Any, command: str, found: "ConfigurationFile | None") -> dict[str, Any]:
    """The default values of one command, as `typer.Context.default_map` wants them."""
    names = {parameter.name for parameter in _commands(context)[command].params}
    options = {} if found is None else found.options
    return {command: {name: value for name, value in options.items() if name in names}}


def _commands(context: Any) -> dict[str, Any]:
    """The commands of the program, by name."""
    commands: dict[str, Any] = getattr(context.command, "commands", {})
    return commands


# Options that a result states itself, and those that do not change what is searched.
NOT_REPEATED = {
    "subject",
    "like",
    "seed",
    "effort",
    "budget",
    "out",
    "json",
    "history",
    "resume",
    "is_trusted",
    "workers",
    "jobs",
    "label",
    "smt2",
    "certificates",
    "save_baseline",
    "record",
    "cache",
}


def typed(context: typer.Context, name: str, value: Any) -> Any:
    """The value of an option if it was typed on the command line, else None."""
    source = context.get_parameter_source(name)
    return value if source is not None and source.name == "COMMANDLINE" else None


def options_to_repeat(context: typer.Context, left_out: Collection[str] = NOT_REPEATED) -> list[str]:
    """The options in force as words of a command, but for those in `left_out`; by default, what decides a run."""
    words: list[str] = []
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if option.name in left_out or not option.opts[0].startswith("--") or value in (None, [], (), option.default):
            continue
        if isinstance(value, bool):
            words.append(option.opts[0] if value else option.secondary_opts[0])
        else:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                words += [option.opts[0], str(one.value if isinstance(one, Enum) else one)]
    return words


def place_in(context: typer.Context) -> Callable[[str], str]:
    """What says where the value of an option comes from: the file and line, if the configuration names it."""

    def place(option: str) -> str:
        name, _, _ = option.partition(".")
        source, found = context.get_parameter_source(name), context.obj
        return str(found.place(option)) if found and source is not None and source.name == "DEFAULT_MAP" else ""

    return place


def config(
    context: typer.Context,
    command: Annotated[
        str, typer.Argument(metavar="[COMMAND]", help="verify or hunt; options of the command may follow.")
    ] = "verify",
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of kvproof.toml instead, for an editor.")
    ] = False,
) -> None:
    """Print the options with which a command would run here, and where each comes from.

    A value comes from the command line, from kvproof.toml or [tool.kvproof] of pyproject.toml (with the line), or it is
    the default.
    """
    with error_boundary():
        from kvproof.check.runs.configuration import schema_text, trusted_subjects

        if schema:
            print(schema_text(), end="")
            return
        if command not in CONFIGURED:
            raise UsageError(f"kvproof {command} has no configuration; there are {' and '.join(CONFIGURED)}")
        found, parent = _found(), context.parent
        assert parent is not None
        parent.obj, parent.default_map = found, _options(parent, command, found)
        trusted_subjects(found)
    of_command = _commands(parent)[command].make_context(command, list(context.args), parent=parent)
    with error_boundary(place=place_in(of_command)):
        from kvproof.check.runs.terminal import output, say

        _require_possible(of_command.params)
        rows = [_row(of_command, parameter, found) for parameter in of_command.command.params]
        if found is not None:
            rows += [
                (key, words(found.values[key]), found.place(key))
                for key, words in OTHERS.items()
                if key in found.values
            ]
        console = output()
        say(console, f"kvproof {command}, configured by {found.path if found else 'no file'}:")
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        for name, value, source in rows:
            say(console, f"  {name:<{widths[0]}}  {value:<{widths[1]}}  {source}")


# Keys that are lists and no options, and how each is printed: of known findings, how many there are.
OTHERS: dict[str, Callable[[Any], str]] = {"known": lambda known: str(len(known)), "trusted_subjects": ", ".join}


def _require_possible(values: dict[str, Any]) -> None:
    """Raise UsageError or ConfigurationError for a value with which the command would not run.

    What the command has to open first, which are the subject and the baseline, is not opened.
    """
    from kvproof.check.runs.arguments import fixed_fields, wanted_properties
    from kvproof.check.runs.effort import effort_of
    from kvproof.check.runs.judges import require_judges
    from kvproof.check.runs.known_findings import known_findings

    effort_of(values["effort"], values["budget"])
    for option in ("judges", "require"):
        require_judges(values.get(option) or (), option)
    fixed_fields(values.get("fix") or ())
    wanted_properties(values.get("wanted") or ())
    known_findings(values["known"])


def _row(context: typer.Context, parameter: Any, found: "ConfigurationFile | None") -> tuple[str, str, str]:
    """An option, its value, and where the value comes from."""
    source, value = context.get_parameter_source(parameter.name), context.params[parameter.name]
    kind = "DEFAULT" if source is None else source.name
    if kind == "DEFAULT_MAP" and found is not None:
        place = found.place(parameter.name)
    else:
        place = "command line" if kind == "COMMANDLINE" else "default"
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = "–" if value is None or value == "" else str(value).lower() if isinstance(value, bool) else str(value)
    return parameter.opts[0], text, place


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
