"""The layout that packaging and trust depend on: six roots, one namespace, imports in one direction only."""

import ast
import graphlib
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import HEAVY
from tests.syntax import parsed, statements

TREE = Path(__file__).resolve().parents[1]
ROOTS = ("spec", "impl", "models", "check", "reports", "audit")
LINES_MAX = 400

# What a root may import of ours, apart from itself.
MAY_IMPORT = {
    "spec": set(),
    "impl": {"spec"},
    "models": {"spec", "impl"},
    "reports": {"spec"},
    "check": {"spec", "impl", "models", "reports"},
    "audit": {"spec", "impl", "models", "check", "reports"},
}
# No wheel has `audit`. This one line imports it, if it is there.
IMPORTS_AUDIT = "check/kvproof/check/cli/faults.py", "kvproof.audit.cli.faults.faults"
# These two roots run where nothing else is installed; the others may use any declared dependency.
THIRD_PARTY = {"spec": set(), "impl": {"numpy", "torch", "triton"}}

# A home or work folder, on any of the usual systems, at the start of a path.
MACHINE_PATH = re.compile(r"(?<![\w.-])(?:[A-Za-z]:[\\/]+Users|/(?:home|Users|root|work))(?![\w-])")

# A run leaves bytecode behind; it is nobody's source.
LEFTOVERS = {"__pycache__", ".DS_Store"}

# The floors of `check`: a folder imports only folders with a smaller number, and its own files. Imports inside
# functions count. `__init__.py` holds the public names, and is imported by nobody here.
FLOOR = {
    "protocol": 1,
    "hosts": 2,
    "oracle": 3,
    "subjects": 3,
    "search": 4,
    "counterexample": 4,
    "isolation": 5,
    "recording": 5,
    "data_plane": 5,
    "runs": 6,
    "hunting": 7,
    "proving": 7,
    "cli": 8,
    "conformance": 8,
    "pytest_plugin": 8,
}
# The floors of `models`, in the same way; a name is a folder, or a file that lies in none.
FLOOR_OF_MODELS = {
    "obligation": 1,
    "translation": 1,
    "proof_record": 1,
    "concolic": 2,
    "crosscheck": 2,
    "solvers": 2,
    "proofs": 3,
    "arithmetic": 4,
    "counterexamples": 4,
    "mapping": 4,
    "refinement": 4,
    "suites": 5,
    "vacuity": 5,
    "certificates": 6,
    "pin": 6,
}
CHECK = TREE / "check" / "kvproof" / "check"
FILES_IN_CHECK_MAX = 6

# What starts, waits for, ends or signals another process.
OF_OS = ("fork", "forkpty", "kill", "killpg", "popen", "posix_spawn", "posix_spawnp", "system", "wait", "waitpid")
EXECUTES = ("execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe", "spawnl", "spawnv", "spawnvp")
MODULES = {"subprocess", "multiprocessing", "concurrent", "signal", "pty", "ray"}
RUNS_PROCESSES = MODULES | {f"os.{name}" for name in (*OF_OS, *EXECUTES)}
RUN_PROCESSES_ELSEWHERE = {  # each with its reason
    # A fork writes the frames of its subject to its journal at a signal; the journal is no matter of hosts.
    "isolation/journal.py": {"signal", "os.kill"},
    # vLLM's connector waits for the future of a handshake; the judge does the job itself, in this thread.
    "subjects/vllm/pd_fakes.py": {"concurrent"},
}

# Folders of tests that are about no single folder of the product, each with its reason.
TESTS_ACROSS = {
    "attacks": "a broken file goes through the reader of its kind, whichever folder has it",
    "docs": "the documents are no source root",
    "benchmarks": "the benchmarks are no source root",
    "fault_injection": "a planted fault is followed from the judge to the saved file",
    "lawful": "a manager that is right is judged as any other, and a broken one beside it",
    "peers": "vLLM's own unit tests run in an environment of their own",
}


def modules_of(root: str) -> list[Path]:
    return sorted((TREE / root).rglob("*.py"))


def python_sources() -> list[Path]:
    folders = (*ROOTS, "tests", "benchmarks", "typings")
    return sorted(path for folder in folders for path in (TREE / folder).rglob("*.py*") if path.suffix != ".pyc")


def names_in(folder: Path) -> set[str]:
    """What is in a folder; a folder that has moved may leave bytecode behind."""
    found = [path for path in folder.iterdir() if path.name not in LEFTOVERS]
    return {path.name for path in found if path.is_file() or any(one.suffix == ".py" for one in path.rglob("*"))}


def from_tree(path: Path) -> str:
    return path.relative_to(TREE).as_posix()


def package_of(module: Path, root: str) -> list[str]:
    """The package a relative import of this module starts from, as its dotted parts."""
    return list(module.relative_to(TREE / root).parent.parts)


@cache
def imported_names(module: Path, root: str) -> list[tuple[int, str]]:
    """Line and absolute dotted name of every import, those inside functions and `if TYPE_CHECKING` included."""
    return list(_imported_names(read(module).imports, package_of(module, root)))


class Source(NamedTuple):
    """What the tests need of a source file."""

    docstring: str
    imports: list[ast.stmt]


@cache
def read(path: Path) -> Source:
    tree = parsed(path)
    imports = [node for node in statements(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return Source(ast.get_docstring(tree) or "", list(imports))


def _imported_names(imports: list[ast.stmt], package: list[str]) -> Iterator[tuple[int, str]]:
    for node in imports:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            parts += node.module.split(".") if node.module else []
            yield from ((node.lineno, ".".join([*parts, alias.name])) for alias in node.names)


def is_allowed(name: str, root: str) -> bool:
    first, _, rest = name.partition(".")
    if first == "kvproof":
        return rest.partition(".")[0] in {root, *MAY_IMPORT[root]}
    return root not in THIRD_PARTY or first in sys.stdlib_module_names or first in THIRD_PARTY[root]


@pytest.mark.parametrize("root", ROOTS)
def test_each_root_holds_only_the_namespace_folder(root: str) -> None:
    assert names_in(TREE / root) == {"kvproof"}, "importable in the checkout, absent from the wheel"


@pytest.mark.parametrize("root", ROOTS)
def test_each_namespace_folder_holds_only_the_package_of_its_root(root: str) -> None:
    assert names_in(TREE / root / "kvproof") == {root}, "an __init__.py here would hide the other roots"


@pytest.mark.parametrize("root", ROOTS)
def test_each_package_tells_type_checkers_that_it_is_typed(root: str) -> None:
    assert {"__init__.py", "py.typed"} <= names_in(TREE / root / "kvproof" / root)


@pytest.mark.parametrize("root", ROOTS)
def test_each_root_imports_only_what_its_layer_may(root: str) -> None:
    forbidden = [
        f"{from_tree(module)}:{line}: {name}"
        for module in modules_of(root)
        for line, name in imported_names(module, root)
        if not is_allowed(name, root) and (from_tree(module), name) != IMPORTS_AUDIT
    ]
    assert forbidden == []


def test_one_line_of_the_product_imports_audit() -> None:
    importing = [
        (from_tree(module), name)
        for root in ROOTS
        if root != "audit"
        for module in modules_of(root)
        for _, name in imported_names(module, root)
        if name.startswith("kvproof.audit")
    ]
    assert importing == [IMPORTS_AUDIT]


def test_every_module_says_in_a_docstring_what_it_is_for() -> None:
    silent = [from_tree(path) for path in python_sources() if not read(path).docstring.strip()]
    assert silent == []


@pytest.mark.filterwarnings("default:long files")
def test_a_long_source_file_is_listed_as_a_warning() -> None:
    """The limit only warns: a subject is not cut into slices to satisfy it."""
    lengths = {from_tree(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_sources()}
    too_long = {path: lines for path, lines in lengths.items() if lines > LINES_MAX}
    if too_long:
        warnings.warn(f"long files, over {LINES_MAX} lines: {too_long}", stacklevel=1)
    assert lengths != {}


def test_no_file_names_a_home_or_work_folder_of_some_machine() -> None:
    if not (TREE / ".git").exists():
        pytest.skip("not a git checkout: a source distribution was made from tracked files")
    listing = ["git", "ls-files", "-z"]
    names = subprocess.run(listing, cwd=TREE, check=True, capture_output=True, text=True).stdout.split("\0")
    files = [TREE / name for name in names if name and (TREE / name).is_file()]
    found = [
        f"{from_tree(path)}:{number}: {line.strip()[:120]}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert files != []
    assert found == []


# Spelt in two pieces, or this file would be found by the test above.
@pytest.mark.parametrize("folder", ["/" + "home", "/" + "Users", "/" + "root", "/" + "work", "C:" + r"\Users"])
@pytest.mark.parametrize("place", ["{}", "see {}/someone/x.py", '"{}/x"', "PATH={}/bin", "--out={}", "file://{}/x"])
def test_a_machine_path_is_recognised_wherever_it_stands(folder: str, place: str) -> None:
    assert MACHINE_PATH.search(place.format(folder))


@pytest.mark.parametrize("text", ["spec/work/x.py", "example.org/home/x", "./root/x", "/workload", "/home-made"])
def test_a_path_inside_the_project_is_no_machine_path(text: str) -> None:
    assert not MACHINE_PATH.search(text)


def module_name(module: Path, root: str) -> str:
    parts = module.relative_to(TREE / root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def calls_of(module: Path) -> set[str]:
    """The functions of `os` that a module names, and the modules that it imports, by their first names."""
    named = {
        f"os.{node.attr}"
        for node in (ast.walk(parsed(module)) if "os." in module.read_text(encoding="utf-8") else ())
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
    }
    return named | {name.partition(".")[0] for _, name in imported_names(module, "check")}


def test_only_hosts_run_or_signal_other_processes() -> None:
    """A host starts, asks within a limit, and ends a process. What runs one elsewhere would be one more host."""
    found = {
        module.relative_to(CHECK).as_posix(): used
        for module in modules_of("check")
        if module.relative_to(CHECK).parts[0] != "hosts" and (used := calls_of(module) & RUNS_PROCESSES)
    }
    assert found == RUN_PROCESSES_ELSEWHERE


def test_work_in_another_process_is_built_twice() -> None:
    """By a process of this machine, and by Ray. Each way to start a process is in one file."""
    users = {
        name: {module.stem for module in (CHECK / "hosts").glob("*.py") if name in calls_of(module)}
        for name in ("subprocess", "multiprocessing", "os.fork", "ray")
    }
    assert users == {
        "subprocess": {"program"},
        "multiprocessing": {"worker_process", "pool"},
        "os.fork": {"fork_server", "descendants"},
        "ray": {"ray_cluster", "on_ray"},
    }


@pytest.mark.parametrize(("root", "floors"), [("check", FLOOR), ("models", FLOOR_OF_MODELS)])
def test_each_folder_imports_only_folders_on_lower_floors(root: str, floors: dict[str, int]) -> None:
    forbidden, top = set(), TREE / root / "kvproof" / root
    for module in modules_of(root):
        folder = module.relative_to(top).parts[0].removesuffix(".py")
        if folder == "__init__":
            continue
        for _, name in imported_names(module, root):
            if name.startswith(f"kvproof.{root}."):
                other = name.split(".")[2]
                if other != folder and floors[other] >= floors[folder]:
                    forbidden.add(f"{module.relative_to(top).as_posix()} -> {other}")
    assert forbidden == set()


def test_every_folder_of_models_has_a_floor() -> None:
    folder = TREE / "models" / "kvproof" / "models"
    names = {name.removesuffix(".py") for name in names_in(folder) if "." not in name or name.endswith(".py")}
    assert names == {*FLOOR_OF_MODELS, "__init__"}


def test_every_folder_of_check_has_a_floor_and_few_files_lie_outside_of_folders() -> None:
    assert {name.removesuffix(".py") for name in names_in(CHECK)} == {*FLOOR, "__init__", "py.typed"}
    assert max(FLOOR.values()) <= 8
    assert len([path for path in CHECK.iterdir() if path.is_file()]) <= FILES_IN_CHECK_MAX


def modules_imported(module: Path, root: str, known: set[str]) -> set[str]:
    """The modules of ours that this one imports, inside functions too; a package that holds this module is left out."""
    own, found = module_name(module, root), set()
    for _, name in imported_names(module, root):
        parts = name.split(".")
        longest = next(
            (p for p in (".".join(parts[:length]) for length in range(len(parts), 0, -1)) if p in known), None
        )
        if longest is not None and longest != own and not f"{own}.".startswith(f"{longest}."):
            found.add(longest)
    return found


def test_no_root_has_an_import_circle() -> None:
    names = {module_name(module, root): (module, root) for root in ROOTS for module in modules_of(root)}
    graph = {name: modules_imported(module, root, set(names)) for name, (module, root) in names.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("imports go in a circle: " + " -> ".join(error.args[1]))


def folders_with_code(top: Path) -> set[str]:
    """Folders below `top`, as paths relative to it, that hold Python files other than package markers and fixtures."""
    files = (path for path in top.rglob("*.py") if path.name not in {"__init__.py", "conftest.py"})
    return {path.parent.relative_to(top).as_posix() for path in files}


def test_the_files_of_tests_that_begin_first_are_there() -> None:
    assert [name for name in HEAVY if not (TREE / "tests" / name).is_file()] == []


def test_tests_mirror_the_product() -> None:
    """Every folder of the product has a folder of tests of the same path, and the other way round."""
    product = {f"{root}/{folder}" for root in ROOTS for folder in folders_with_code(TREE / root / "kvproof" / root)}
    product = {name.removesuffix("/.") for name in product} - {
        "check/recording/on_start"
    }  # a start-up hook, no package
    tests = folders_with_code(TREE / "tests") - {"."}
    across = {folder for folder in tests if folder.partition("/")[0] in TESTS_ACROSS}
    assert tests - across - product == set(), "tests of no folder of the product"
    assert product - tests == set(), "folders of the product without tests"


def _is_data(node: ast.ClassDef) -> bool:
    """Whether the class is a record: a dataclass, or one that derives from NamedTuple or Struct."""
    names = {ast.unparse(one).partition("(")[0] for one in (*node.bases, *node.decorator_list)}
    return bool(names & {"dataclass", "NamedTuple", "Struct", "msgspec.Struct"})


def test_there_is_one_record_of_a_planted_fault() -> None:
    """Counted are the records that have a text and what replaces it, and those that are named after planted faults.

    They are counted in the product, the tests, the documents and the benchmarks. An `Edit` is one replacement, and a
    `PlantedFault` all of a fault. Records of `reports/` are results, those of benchmarks are known faults of engines.
    """
    replacing, named = [{"old", "new"}, {"line", "replacement"}], ("Fault", "Mutant", "Plant", "Weakening")
    may_have = re.compile(rf"class \w*({'|'.join(named)})\b|^ +(old|line): ", re.MULTILINE)
    found = set()
    for folder in (*ROOTS, "tests", "benchmarks", "docs"):
        for path in sorted((TREE / folder).rglob("*.py")):
            if not may_have.search(path.read_text(encoding="utf-8")):
                continue  # a syntax tree is ten times as dear as its text
            for node in statements(parsed(path)):
                if isinstance(node, ast.ClassDef) and _is_data(node):
                    fields = {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
                    is_named = folder not in ("reports", "benchmarks") and node.name.endswith(named)
                    if is_named or any(pair <= fields for pair in replacing):
                        found.add(node.name)
    assert found == {"PlantedFault", "Edit"}
