"""`kvproof init`: write an adapter to be filled in, a test, the configuration and a CI workflow."""

import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvproof.check.runs.errors import UsageError, error_boundary

if TYPE_CHECKING:
    from kvproof.check.protocol.reference import AdapterCall
    from kvproof.check.protocol.skeletons import Skeleton

TEMPLATES = Path(__file__).with_name("templates")
LANGUAGES = "python", "javascript"
WIDTH = 88  # of what is written, which is what most projects allow
QUOTES = '"""'
SEPARATED = re.compile(r", (?=\w+(?::|,|$))")  # between two arguments, and not within the type of one
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
WORKFLOW = Path(".github", "workflows", "kvproof.yml")
# The types of the skeleton are those that most adapters return; the base class allows more.
NARROWER = {
    "bool | Admission": "bool",
    "Mapping[int, Sequence[int]] | Mapping[int, Sequence[Sequence[int]]]": "dict[int, list[int]]",
    "Sequence[Pair] | None": "list[tuple[int, int]]",
    "list[Pair]": "list[tuple[int, int]]",
    "Sequence[int] | None": "list[int]",
    "int | Admitted | None": "int",
}


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder to write to; created if missing.")
    ] = Path(),
    language: Annotated[
        str | None,
        typer.Option("--language", metavar="L", help=f"{' or '.join(LANGUAGES)} (a program behind a pipe)."),
    ] = None,
    capabilities: Annotated[
        list[str] | None,
        typer.Option(
            "--capability",
            metavar="C",
            help="What the manager can do, such as fork, caching or swap; --reference lists all. Repeatable.",
        ),
    ] = None,
    level: Annotated[
        str, typer.Option("--level", metavar="L", help="manager, scheduler, pool, store, encoder or pair.")
    ] = "manager",
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The name of the manager.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; take the default of what is not given.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print the reference of adapters instead, and write nothing.")
    ] = False,
) -> None:
    """Write an adapter with every call that the capabilities need, a test, kvproof.toml and a CI workflow.

    On a terminal it asks for what is not given.
    """
    with error_boundary():
        if reference:
            from kvproof.check.protocol.reference import page

            print(page(), end="")
            return
        skeleton = _skeleton(level)
        asks = sys.stdin.isatty() and not yes
        default = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._") or "manager"
        if name is None:
            name = _asked(f"Name of the {skeleton.noun}", default, _require_name) if asks else default
        is_manager = skeleton.level == "manager"
        if language is None:
            language = _asked("Language", LANGUAGES[0], _require_language) if asks and is_manager else LANGUAGES[0]
        if capabilities is None:
            offered = "fork" if is_manager else ""
            question = f"Capabilities{', such as fork caching swap' if is_manager else ''}"
            text = _asked(question, offered, lambda text: _checked(_words(text), skeleton)) if asks else offered
            capabilities = _words(text)
        files = _files(skeleton, name, language, capabilities)
        _write(folder, files, force)
        for path in files:
            print(f"wrote {folder / path}")
        where = "" if folder == Path() else f" in the folder {folder}"
        print(f"Next: write the calls in {folder / next(iter(files))}, then run `kvproof hunt`{where}.")


def _asked(question: str, default: str, check: Callable[[str], object]) -> str:
    """The answer of the user; the question is repeated until `check` accepts the answer."""

    def checked(answer: str) -> str:
        try:
            check(answer)
        except UsageError as error:
            raise typer.BadParameter(str(error)) from error
        return answer

    answer: str = typer.prompt(question, default=default, value_proc=checked)
    return answer


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _require_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(f"--name: {name!r} is not a name: use letters, digits, '.', '_' and '-'")


def _require_language(language: str) -> None:
    if language not in LANGUAGES:
        raise UsageError(f"--language: there is no {language!r}; choose from {', '.join(LANGUAGES)}")


def _skeleton(level: str) -> "Skeleton":
    """What the author of an adapter of this level writes. Raises UsageError."""
    from kvproof.check.protocol.skeletons import SKELETONS
    from kvproof.check.protocol.suggestion import did_you_mean

    if level not in SKELETONS:
        question = did_you_mean(level, list(SKELETONS))
        raise UsageError(f"--level: there is no {level!r}{question}; choose from {', '.join(SKELETONS)}")
    return SKELETONS[level]


def _files(skeleton: "Skeleton", name: str, language: str, capabilities: list[str]) -> dict[Path, str]:
    """The content of each file, by its path in the folder; the adapter is the first."""
    from kvproof.check.protocol.reference import OBSERVED
    from kvproof.check.runs.run import version

    _require_name(name)
    _require_language(language)
    declared = _checked(capabilities, skeleton)
    if language != LANGUAGES[0] and skeleton.level != "manager":
        raise UsageError(
            f"--language: only a manager goes over a pipe; write the adapter of a {skeleton.noun} in {LANGUAGES[0]}"
        )
    values: dict[str, Any] = {"name": name, "version": version(), "level": skeleton.level}
    values["is_program"] = language != "python"
    calls = skeleton.calls(declared)
    if language == "python":
        subject = "kvproof_adapter.py:Adapter"
        values |= {"subject": subject, "can": skeleton.can.__name__, "base": skeleton.base and skeleton.base.__name__}
        values["arguments"] = _arguments(skeleton.can.__name__, declared)
        methods = values["calls"] = [_method(call) for call in calls]
        values["imports"] = _imports(skeleton, [one["signature"] for one in methods])
        files = {Path("kvproof_adapter.py"): "adapter.j2", Path("test_kvproof.py"): "test.j2"}
    else:
        values["subject"] = "pipe:node kvproof_manager.js"
        values["capabilities"] = json.dumps(dict.fromkeys(declared, True))
        values["host"] = ", num_free_host" if "swap" in declared else ""
        values["calls"] = [_function(call) for call in calls if call.name not in OBSERVED]
        files = {Path("kvproof_manager.js"): "program.j2", Path("test_kvproof.py"): "test.j2"}
    files |= {Path("kvproof.toml"): "configuration.j2", WORKFLOW: "workflow.j2"}
    return {path: _rendered(template, values) for path, template in files.items()}


def _imports(skeleton: "Skeleton", signatures: list[str]) -> list[str]:
    """The lines that import the base of the adapter, its capabilities and the types of its calls."""
    import kvproof.check

    found = skeleton.imports(signatures)
    for kind in (skeleton.can, *([skeleton.base] if skeleton.base else [])):
        found.setdefault(kind.__module__, []).append(kind.__name__)
    public, offered = set[str](), set(dir(kvproof.check))  # what has a name without the module of the protocol
    for module, names in [*found.items()]:
        if module.startswith("kvproof"):
            public |= offered & {*names}
            found[module] = sorted({*names} - offered)
    found["kvproof.check"] = sorted(public | ({"Assumption"} if skeleton.base is None else set()))
    found = {module: names for module, names in found.items() if names}
    groups: tuple[list[str], list[str]] = [], []  # what Python has, and what kvproof has
    for module, names in sorted(found.items()):
        groups[module.startswith("kvproof")].append(_import(module, names))
    return [*groups[0], *([""] if groups[0] else []), *groups[1]]


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    return line if len(line) <= WIDTH else f"from {module} import (\n" + "".join(f"    {one},\n" for one in names) + ")"


def _arguments(can: str, declared: list[str]) -> str:
    """The arguments of the class of capabilities, on as many lines as they need."""
    words = [f"{one}=True" for one in declared]
    text, indent = ", ".join(words), " " * 8
    if len(f"    capabilities = {can}({text})") <= WIDTH:
        return text
    if len(indent + text) <= WIDTH:
        return f"\n{indent}{text}\n    "
    return "\n" + "".join(f"{indent}{word},\n" for word in words) + "    "


def _checked(names: Iterable[str], skeleton: "Skeleton") -> list[str]:
    """The capabilities, each once. Raises UsageError for one that does not exist or is not a yes or no."""
    from kvproof.check.protocol.reference import documented_fields
    from kvproof.check.protocol.suggestion import did_you_mean

    defaults = vars(skeleton.can())
    known = [name for name, default in defaults.items() if default is False]
    meant = {name: comment for name, (_, comment) in documented_fields(skeleton.can).items() if name in known}
    for name in names:
        if len(words := _words(name)) > 1:
            repeated = " ".join(f"--capability {word}" for word in words)
            raise UsageError(f"--capability names one capability; repeat it: {repeated}")
        if name in defaults and name not in known:
            raise UsageError(
                f"--capability: init only sets a capability to True that is False by default; {name} is "
                f"{defaults[name]!r} by default, so write its value into the `capabilities` of the adapter by hand"
            )
        if name not in known:
            parts = name.lower().replace("-", "_").split("_")
            said = [one for one, comment in meant.items() if all(part in comment.lower() for part in parts)]
            question = f" (did you mean {said[0]}?)" if said else did_you_mean(name, known)
            raise UsageError(f"--capability: there is no {name!r}{question}; choose from {', '.join(known)}")
    return list(dict.fromkeys(names))


def _method(call: "AdapterCall") -> dict[str, str]:
    """A method of the Python skeleton: its signature and its docstring."""
    from kvproof.check.protocol.reference import OPTIONAL

    arguments, _, answer = call.signature.rpartition(" -> ")
    indent, text = " " * 8, call.sentences
    if call.name in OPTIONAL:
        text += " Delete this method if the manager does not show it."
    lines = textwrap.wrap(f'"""{text}', WIDTH - len(indent) - len(QUOTES))
    lines[-1:] = [lines[-1] + QUOTES] if len(lines) == 1 else [lines[-1], QUOTES]
    docstring = "\n".join(indent + line for line in lines)
    signature = f"{arguments} -> {NARROWER.get(answer, answer)}"
    if len(f"    def {signature}:") > WIDTH:
        name, _, words = arguments.removesuffix(")").partition("(")
        if len(indent + words) > WIDTH:
            words = f",\n{indent}".join(SEPARATED.split(words)) + ","
        signature = f"{name}(\n{indent}{words}\n    ) -> {NARROWER.get(answer, answer)}"
    return {"signature": signature, "docstring": docstring}


def _function(call: "AdapterCall") -> dict[str, str]:
    """A function of a program: its name, and a comment with its arguments and its answer."""
    from kvproof.check.protocol.reference import FIELDS_OF_OPEN, PIPE, SENT_TO_PIPE

    arguments, answer = (text.replace("`", "") for text in PIPE[call.name])
    arguments = arguments.removeprefix("open: ").replace(FIELDS_OF_OPEN, ", ".join(SENT_TO_PIPE))
    text = f"{call.sentences} Arguments: {arguments}. Answer: {answer}."
    comment = "\n".join(f"  // {line}" for line in textwrap.wrap(text, WIDTH - 5))
    return {"name": "open" if call.name == "make" else call.name, "comment": comment}


def _rendered(template: str, values: dict[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(values).rstrip() + "\n"


def _write(folder: Path, files: dict[Path, str], force: bool) -> None:
    """Write the files. Raises UsageError, and writes none, if one is there already or lies outside of the folder."""
    for path in files:
        if not (folder / path).resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{folder / path} leads out of the folder, by a link; nothing was written")
    there = [str(folder / path) for path in files if (folder / path).exists()]
    if there and not force:
        raise UsageError(f"{', '.join(there)}: already there, and nothing was written; --force overwrites")
    try:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}") from error
