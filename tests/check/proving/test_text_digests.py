"""What changes the digest of a part of the text, and what changes that of everything else."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kvproof.spec
from kvproof.check.proving.text_digests import digest_of_part, digest_without_functions, files_of_texts
from kvproof.models.translation.text import specification

SPEC = Path(kvproof.spec.__path__[0]).resolve()
RULES, STATE, APPEND = "text/rules.py", "text/state.py", "contracts/append_contract.py"
Edit = Callable[[str, str, str], str]  # of a file of the specification: an old text, a new one; the digest afterwards


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """Edit a copy of the specification. Returns the digest of everything in it but the functions of the texts."""
    copy = tmp_path.resolve() / "spec"
    shutil.copytree(SPEC, copy)
    texts = {copy / file.relative_to(SPEC) for file in files_of_texts()}

    def edit(file: str, old: str, new: str) -> str:
        path = copy / file
        source = path.read_text(encoding="utf-8")
        assert old in source
        path.write_text(source.replace(old, new, 1), encoding="utf-8")
        return digest_without_functions([copy], texts)

    return edit


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (RULES, "    state.home[seq] = GPU\n", ""),
        (RULES, "Create an empty sequence", "Make an empty sequence"),
        (RULES, "The rules: the smallest steps", "The rules: small steps"),
        (RULES, "@rule\ndef admit", "# A sequence begins here.\n\n@rule\ndef admit"),
        (APPEND, "num_tokens_known(state, given.seq) == given.num_tokens", "True"),
    ],
)
def test_the_body_of_a_function_is_nothing_else(edit: Edit, file: str, old: str, new: str) -> None:
    assert edit(file, "", "") == edit(file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (
            RULES,
            "def admit(state: State, seq: SeqId, window: Window)",
            "def admit(state: State, seq: SeqId, window: Count)",
        ),
        (RULES, "@rule\ndef admit", "@step\ndef admit"),
        (RULES, "@rule\ndef admit", "@rule\ndef admit_again(state: State) -> None:\n    pass\n\n\n@rule\ndef admit"),
        (RULES, "def reserve(", "def reserved("),
        (
            STATE,
            "live: list[bool] = real(SEQS, to=FLAGS, start=False)",
            "live: list[bool] = ghost(SEQS, to=FLAGS, start=False)",
        ),
        (STATE, "NONE = -1", "NONE = -2"),
        (APPEND, "choice=next_append,", "choice=append_precondition,"),
        ("language.py", "POOLS = Domain", "POOLS  = Domain"),
        ("compilation.py", "class CheckFailed", "class CheckFailed "),
        ("text/properties.py", "refcount-exact", "refcount-exakt"),
    ],
)
def test_heads_fields_constants_and_other_files_are_everything_else(edit: Edit, file: str, old: str, new: str) -> None:
    assert edit(file, "", "") != edit(file, old, new)


def test_a_function_that_runs_when_its_file_is_read_is_everything_else(edit: Edit) -> None:
    before = edit(STATE, "NONE = -1", "NONE = -1\n\n\ndef offset() -> int:\n    return 1\n\n\nOFFSET = offset()")
    assert before != edit(STATE, "return 1", "return 2")


def test_a_function_that_is_given_to_a_call_may_run_there_unless_the_call_reads_its_head(edit: Edit) -> None:
    before = edit(STATE, "NONE = -1", "NONE = -1\n\n\ndef offset() -> int:\n    return 1\n\n\nreal(start=offset)")
    assert before == edit(STATE, "return 1", "return 2")
    before = edit(STATE, "real(start=offset)", "map(offset, [1])")
    assert before != edit(STATE, "return 2", "return 3")


@pytest.mark.parametrize(
    ("more", "none"),
    [
        ("def number():\n    return value()\n", "number()"),
        ("import sys\n", "sys.modules[__name__].value()"),
        ("", "globals()['value']()"),
        ("", "(lambda: value())()"),
        ("def least(one):\n    return one()\n", "least(value)"),
        ("from kvproof.spec.text import steps as least\n", "least(value)"),
        ("class Number:\n    def __neg__(self):\n        return value()\n", "-Number()"),
        ("def __getattr__(name):\n    return value()\n", "0"),
        ("def number(one: value()): ...\n", "0"),
        ("def number(one: 'value()'): ...\n", "0"),
        ("def number(one=value()): ...\n", "0"),
        ("if True:\n    from builtins import eval as real\n", "real('value()')"),
        ("", "int(value.__doc__)"),
        ("", "__doc__"),
        ("class Number(metaclass=type):\n    value()\n", "0"),
        ("State = least = real\nState.value = 3\n", "0"),
    ],
)
def test_all_of_every_text_is_everything_else_if_code_outside_of_functions_may_run_or_read_a_body(
    edit: Edit, more: str, none: str
) -> None:
    value = "def value() -> int:\n    'one'\n    return 1"
    before = edit(STATE, "NONE = -1", f"{value}\n\n{more}\nNONE = {none}")
    after = edit(STATE, "return 1", "return 2")
    assert len({before, after, edit(RULES, "Create an empty sequence", "Make an empty sequence")}) == 3


@pytest.mark.parametrize(
    "more",
    [
        "NONE = -1 + 2 * FREE",
        "NONES: list[int] = [NONE, (NONE, 3)]",
        "class Numbers:\n    value: list[list[int]] = real(SEQS, to=FLAGS, start=pool_of)",
        "@function\ndef number(one: int, *, other: list[SLOTS] = NONE) -> None: ...",
        "from kvproof.spec.store.domains import KEYS",
    ],
)
def test_plain_code_outside_of_functions_leaves_the_bodies_out(edit: Edit, more: str) -> None:
    before = edit(STATE, "class State:", f"{more}\n\n\nclass State:")
    assert before == edit(STATE, "return GPU if block < NUM_GPU_BLOCKS else HOST", "return GPU")


def test_no_function_of_a_text_runs_when_a_module_of_the_prover_or_the_specification_is_imported() -> None:
    """What other files than the texts run then would be in no digest."""
    program = """
import importlib, inspect, pkgutil, sys
ran = set()
sys.setprofile(lambda frame, *_: ran.add(frame.f_code))
import kvproof.check.proving.run, kvproof.models, kvproof.spec
for package in kvproof.spec, kvproof.models:
    for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(one.name)
sys.setprofile(None)
from kvproof.check.proving.text_digests import files_of_texts
texts = {str(file) for file in files_of_texts()}
for code in ran:
    if code.co_filename in texts and code.co_flags & inspect.CO_OPTIMIZED:
        print(code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_digest_of_a_part_has_the_functions_of_the_part_and_no_others() -> None:
    text = specification()
    before = digest_of_part("rest", text, ["evict", "forget"])
    assert before == digest_of_part("rest", text.edited("append", "state", "state"), ["forget", "evict"])
    assert before != digest_of_part("other files", text, ["evict", "forget"])
    assert before != digest_of_part("rest", text, ["evict"])
    weaker = text.replaced("forget", text.functions["gain"][0])
    assert before != digest_of_part("rest", weaker, ["evict", "forget"])


def test_a_function_in_another_line_has_the_same_digest_and_one_with_other_lines_has_not() -> None:
    text = specification()
    source = ast.unparse(text.functions["evict"][0])
    alone, below = text.rewritten(source), text.rewritten("\n\n" + source)
    longer = text.rewritten(source.replace("\n", "\n\n", 1))
    first, second, third = (digest_of_part("", one, ["evict"]) for one in (alone, below, longer))
    assert first == second
    assert first != third
