"""A counterexample as plain Python: the calls of the manager's own objects, and the assertion that fails.

It is for a bug report to somebody who has no kvproof. Before it is written, it is run in a process that cannot import
kvproof, and must fail by its own assertion there. Otherwise the file says what is missing.
"""

import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvproof.check.counterexample.run_plain import ASSERTED
from kvproof.check.counterexample.without_kvproof import definitions, imports_kvproof
from kvproof.check.hosts.program import finished, module
from kvproof.check.oracle.earlier_change import OBSERVES
from kvproof.check.oracle.method_called import QUESTIONS
from kvproof.check.oracle.plain_calls import NOTHING, PlainLine, PlainRun
from kvproof.check.oracle.plain_values import OF_FILE
from kvproof.check.subjects.loading.download import default_cache
from kvproof.check.subjects.registry import NAMED
from kvproof.reports.document import write_atomically
from kvproof.spec.trace import Trace, names_code

RUN, SECONDS_MAX = Path(__file__).with_name("run_plain.py"), 60.0
LINE_LENGTH, COPIED, NOT_THERE = 120, "# Of ", "ModuleNotFoundError"
WITHOUT_INIT = """for name in {packages!r}:  # without what their __init__ imports
    folder = importlib.util.find_spec(name.partition(".")[0]) if "." not in name else None
    if folder is None:
        parent, _, part = name.rpartition(".")
        places = [str(Path(place) / part) for place in sys.modules[parent].__path__]
    else:
        places = list(folder.submodule_search_locations)
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = places"""


@dataclass(frozen=True)
class PlainScript:
    """A script. missing: why it is not known to fail without kvproof; empty if it does. remark: how it was run."""

    text: str
    missing: str = ""
    remark: str = ""


def path_of_script(path: Path) -> Path:
    """The path of the script that belongs to a counterexample file."""
    return path.with_name(f"plain_{path.stem.replace('-', '_')}.py")


def write_script(path: Path, trace: Trace, run: PlainRun, story: str) -> tuple[Path, PlainScript]:
    """Write the script of a counterexample file beside it. story: as a docstring can hold it. Raises OSError."""
    script = plain_script(trace, run, story)
    write_atomically(path_of_script(path), script.text.encode("utf-8", "backslashreplace"))
    return path_of_script(path), script


def plain_script(trace: Trace, run: PlainRun, story: str) -> PlainScript:
    """The shortest script that fails by its assertion; if none does, the whole run with what is missing."""
    row = NAMED.get(trace.subject.partition("==")[0])
    engine = row.engine or row.name if row is not None else ""
    reasons = list(run.missing)
    if run.claim:
        try:
            for is_bare in (False, True) if engine else (False,):
                for lines in _shorter(run):
                    body = _body(replace(run, lines=lines), trace, bool(engine), is_bare)
                    reason = _reason_of(body, trace, "")
                    if not reason:
                        return PlainScript(_text(story, body, _where(body, engine)))
                    reasons.append(reason)
                    if NOT_THERE in reason:
                        break
            if engine and not names_code(trace.subject):
                body = _body(replace(run, lines=list(_shorter(run))[-1]), trace, True, False)
                reasons.append(_reason_of(body, trace, trace.subject))
                if not reasons[-1]:
                    release = trace.subject.partition("==")[2]
                    remark = f"It was run with those modules of {engine} {release} that it calls."
                    return PlainScript(_text(story, body, f"{_where(body, engine)} {remark}"), "", remark)
        except ValueError as lacking:
            reasons = [f"the manager's file needs {lacking}"]
    missing = "; ".join(run.missing[:3] or reasons[-1:])
    whole = [f"raise SystemExit({f'not complete: {missing}'!r})", "", *_steps(run), *run.claim]
    return PlainScript(_text(story, whole, f"NOT COMPLETE. {missing}."), missing)


def _text(story: str, body: Sequence[str], where: str) -> str:
    return "\n".join(['"""' + story, "", where, '"""', "", *body, ""])


def _where(body: Sequence[str], engine: str) -> str:
    needs = f" It needs {engine}." if engine else ""
    if any(line.startswith(COPIED) for line in body):
        needs = "\nIt has the classes as they were, because their file imports kvproof."
    return f"It needs no kvproof, and ends with an AssertionError while the manager is broken.{needs}"


def _shorter(run: PlainRun) -> Iterator[list[PlainLine]]:
    """The lines of the run: first without those that should change nothing, last all."""
    last = run.lines[-1].step if run.lines else 0
    unseen = [line for line in run.lines if line.call not in OBSERVES or "=" in line.code.partition("(")[0]]
    changing = [line for line in unseen if line.call not in QUESTIONS or line.step == last]
    tried: list[list[PlainLine]] = []
    for lines in (changing, unseen, run.lines):
        lines = [line for line in lines if not line.code.startswith(NOTHING)]
        if lines not in tried:
            tried.append(lines)
    yield from tried


# Its text ----------------------------------------------------------------------------------------------------------


def _body(run: PlainRun, trace: Trace, is_engine: bool, is_bare: bool) -> list[str]:
    """The script without its docstring. Raises ValueError."""
    body = [*_imports(run, is_engine, is_bare), "", *run.defined, *_steps(run, trace.steps), "", *run.claim]
    text = "\n".join(body)
    further = [f"from {module} import {name}" for module, name in USED if f"{name}(" in text]
    used = [f"import {name}" for name in ("importlib.util", "sys") if f"{name}." in text]
    further += ["from pathlib import Path", "from types import ModuleType"] if is_bare else []
    return [*sorted(used), *sorted(further), *body]


USED = (("collections", "deque"), ("contextlib", "suppress"), ("types", "SimpleNamespace"))


def _imports(run: PlainRun, is_engine: bool, is_bare: bool) -> list[str]:
    folders, lines, defined = dict[str, None](), list[str](), list[str]()
    for name in dict.fromkeys(one for one, _, _ in run.imports):
        wanted = [(inner, given) for other, inner, given in run.imports if other == name]
        file = Path(run.files.get(name) or "?")
        called = name.removeprefix(OF_FILE)
        if not is_engine and file.is_file() and imports_kvproof(file):
            defined += [
                "",
                f"{COPIED}{file.name}, without what needs kvproof",
                *definitions(file, {n for n, _ in wanted}),
            ]
            defined += [f"{given} = {inner}" for inner, given in wanted if inner != given]
            continue
        root = file.parents[called.count(".") + (file.name == "__init__.py")] if file.is_file() else Path()
        if not is_engine and file.is_file() and not _is_installed(root):
            folders.setdefault(_shown(root))
        listed = (inner if inner == given else f"{inner} as {given}" for inner, given in wanted)
        lines.append(f"from {called} import {', '.join(listed)}")
    before = [f"sys.path.insert(0, {folder!r})" for folder in folders]
    if is_bare:
        parts = [one.split(".") for one, _, _ in run.imports if "." in one]
        packages = dict.fromkeys(".".join(part[:end]) for part in parts for end in range(1, len(part)))
        before += ["", WITHOUT_INIT.format(packages=sorted(packages))]
    return ["", *before, *lines, *defined]


def _is_installed(root: Path) -> bool:
    """Whether any Python of this environment finds modules in the folder."""
    installed = [*site.getsitepackages(), sysconfig.get_path("stdlib")]
    return any(root.is_relative_to(folder) for folder in installed)


def _shown(folder: Path) -> str:
    return os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)


def _steps(run: PlainRun, steps: Sequence[str] = ()) -> list[str]:
    lines, step = list[str](), 0
    for line in run.lines:
        if line.step != step:
            step = line.step
            said = " ".join(steps[step - 1].split()) if step <= len(steps) else ""
            lines += ["", f"# {step}  {said}"[:LINE_LENGTH].rstrip()]
        if line.code and line.is_raised:
            lines += ["with suppress(Exception):", f"    {line.code}"]
        elif line.code:
            lines.append(f"{line.code}  # {line.answer}" if line.answer else line.code)
    return lines


# Its run -----------------------------------------------------------------------------------------------------------


def _reason_of(body: Sequence[str], trace: Trace, subject: str) -> str:
    """Why the script does not fail by its assertion; empty if it does. subject: whose modules of an engine it gets."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "plain.py")
        script.write_text("\n".join(body), encoding="utf-8", errors="backslashreplace")
        given = (subject, str(script), *_folders(trace))
        name = "kvproof.check.counterexample.run_plain"
        command = module(name, *given) if subject else [sys.executable, "-I", str(RUN), *given]
        try:
            done = finished(command, SECONDS_MAX, in_other_encoding="replace")
        except TimeoutError as error:
            return f"the script gave {error}"
    if done.code == ASSERTED:
        return ""
    said = done.errors.strip().rpartition("\n")[2]
    return f"without kvproof it ends with {said}" if done.code else "without kvproof its assertion holds"


def _folders(trace: Trace) -> list[str]:
    """Where the sources of the engine are that the run was made on."""
    known, _, release = trace.subject.partition("==")
    row = NAMED.get(known)
    if row is None or not release:
        return []
    folder = default_cache() / f"{row.engine}-{release}" if row.engine and os.sep not in release else Path(release)
    return [str(folder.absolute())]
