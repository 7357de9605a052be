"""The reference pages of the site, generated from the code: nothing in them is written twice, so nothing grows stale.

Each function returns the Markdown of one page: the command line from typer, the configuration and the file formats from
their JSON schemas, the Python names from their docstrings.
"""

import inspect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

import kvproof.check
import kvproof.reports
from kvproof.check.cli.app import app
from kvproof.check.runs.configuration import schema as configuration_schema

SCHEMAS = {
    "result": ("The result document", "`result.json` in the `--out` folder, and what `--json` writes."),
    "trace": ("The trace of a counterexample", "`crashes/*.json` in the `--out` folder; `kvproof replay` reads it."),
}


def command_line() -> str:
    """Every command with its arguments and options, as `--help` prints them."""
    command = typer.main.get_command(app)
    parts = ["# Command line", command.help or ""]
    for name, one in all_commands(command):
        context = one.context_class(one, info_name=name)
        parts += [f"## {name}", f"```text\n{one.get_usage(context)}\n```", inspect.cleandoc(one.help or "")]
        rows = [record for option in one.params if (record := option.get_help_record(context))]
        if rows:
            parts.append(_table(("option", "meaning"), [(f"`{first}`", _cell(text)) for first, text in rows]))
    return "\n\n".join(parts) + "\n"


def all_commands(command: Any, name: str = "kvproof") -> Iterator[tuple[str, Any]]:
    """This command if it does something by itself, and those below it, each with its whole name."""
    below = getattr(command, "commands", {})  # typer may bring click under a name of its own
    if not below or command.invoke_without_command:
        yield name, command
    for word, one in below.items():
        yield from all_commands(one, f"{name} {word}")


def configuration() -> str:
    """The keys of `kvproof.toml`."""
    return (
        "# Configuration\n\nThe keys of `kvproof.toml`, or of `[tool.kvproof]` in `pyproject.toml`. A key has the "
        "meaning and the values of the option with its name. [ci.md](../ci.md#the-configuration-of-a-repository) has "
        "an example, and `kvproof config` prints what is in force.\n\n" + _schema(configuration_schema())
    )


def file_format(name: str) -> str:
    """The fields of the result document or of a trace."""
    title, about = SCHEMAS[name]
    return f"# {title}\n\n{about} The JSON schema: [{name}.schema.json]({name}.schema.json).\n\n" + _schema(
        json.loads(schema_text(name))
    )


def schema_text(name: str) -> str:
    """The published schema file, which is part of the package."""
    return (Path(kvproof.reports.__path__[0]) / f"{name}.schema.json").read_text(encoding="utf-8")


def python_names() -> str:
    """The public names of `kvproof.check`."""
    parts = [
        "# Python names",
        "`from kvproof.check import …`; these names stay, and all others may change.",
        "`make docs-reference` makes this page from the sources.",
    ]
    for name in kvproof.check.HOMES:
        one = getattr(kvproof.check, name)
        parts += [f"## {name}", f"```python\n{_signature(name, one)}\n```", inspect.cleandoc(one.__doc__ or "")]
    return "\n\n".join(parts) + "\n"


def _signature(name: str, one: Any) -> str:
    try:
        signature = inspect.signature(one)
    except ValueError:  # an enumeration
        return f"class {name}"
    if len(text := f"{name}{signature}") <= 100:
        return text
    lines = [f"    {parameter}," for parameter in signature.parameters.values()]
    return "\n".join([f"{name}(", *lines, ")"])


def _schema(schema: dict[str, Any]) -> str:
    """A table for each object of a JSON schema, the outermost one first."""
    parts = []
    objects = {name: one for name, one in schema.get("$defs", {}).items() if "properties" in one}
    if "properties" in schema:
        objects = {schema["title"].partition(":")[0]: schema} | objects
    for name, one in objects.items():
        rows = [(f"`{key}`", _type(value), _note(value, key in one.get("required", ()))) for key, value in _fields(one)]
        parts += [f"## {name}", _cell(one.get("description", "")).replace("<br>", "\n\n")]
        parts.append(_table(("field", "type", "default"), rows))
    return "\n\n".join(part for part in parts if part) + "\n"


def _fields(one: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(one["properties"].items())


def _type(value: dict[str, Any]) -> str:
    """The type of a field in words."""
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "anyOf" in value:
        return " or ".join(_type(one) for one in value["anyOf"])
    if "enum" in value:
        return " or ".join(f"`{json.dumps(one)}`" for one in value["enum"])
    if value.get("type") == "array":
        if "prefixItems" in value:
            return f"({', '.join(_type(one) for one in value['prefixItems'])})"
        return f"list of {_type(value['items'])}" if value.get("items") else "list"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"object of {_type(value['additionalProperties'])}"
    return str(value.get("type", "any"))


def _note(value: dict[str, Any], is_required: bool) -> str:
    return "required" if is_required else f"`{json.dumps(value['default'])}`" if "default" in value else ""


def _cell(text: str) -> str:
    """Text in a cell of a table: no line ends, no cell ends, no tags."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(python_names(), end="")
