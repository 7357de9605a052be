"""A name means the same in every module of the text: both readers have one namespace for all of them."""

import ast
import builtins
import inspect
from collections import Counter

from kvproof.spec import language
from kvproof.spec.contract_texts import CONTRACT_TEXTS
from kvproof.spec.language import COLLECTED
from kvproof.spec.native import FIELDS
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.texts import TEXTS

MODULES = (*TEXTS, *CONTRACT_TEXTS)


def test_no_two_functions_have_one_name_and_none_the_name_of_a_part_of_the_language() -> None:
    """Of two functions the readers would take the last one, and the compiled text another one than the prover."""
    trees = [ast.parse(inspect.getsource(module)) for module in MODULES]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef))
    assert len(names) > 200
    assert [name for name, number in names.items() if number > 1] == []
    assert names.keys() & (vars(builtins).keys() | vars(language).keys()) == set()


def test_no_function_and_no_constant_is_imported_under_another_name() -> None:
    constants: dict[str, int] = {}
    for module in MODULES:
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__.startswith("kvproof.spec."):
                assert value.__name__ == name, module.__name__
            if isinstance(value, int) and name == name.upper():
                assert value == constants.setdefault(name, value), f"{name} of {module.__name__}"
    assert constants["FREE"] != constants["USED"]


def test_every_property_that_a_guard_a_check_or_a_claim_names_has_a_meaning() -> None:
    """A check of a property that does not exist would be counted for none."""
    found: set[object] = {one.property for one in (*COLLECTED.invariants, *COLLECTED.theorems)}
    found |= {one.property for one in COLLECTED.contracts}
    for module in TEXTS:
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            match node:
                case ast.Call(func=ast.Name("check"), args=[_, ast.Constant(property)]):
                    found.add(property)
                case ast.Call(func=ast.Name("require"), args=[_, _, ast.Constant(property)]):
                    found.add(property)
    assert len(found) > 15
    assert found - MEANINGS.keys() == set()


def test_no_field_has_the_name_of_an_unknown_of_the_proofs() -> None:
    """The state at the start of an operation is unknown under the names of the fields after `start_`, for example."""
    prefixes = ("start_", "twin_", "given_", "denied_")
    assert [name for name in FIELDS if name.startswith(prefixes)] == []
    assert len(FIELDS) > 30
