"""A unit of obligations reads only its part of the text, so it depends on nothing else of it."""

import subprocess
import sys

import pytest

from kvproof.models.mapping.theorems import READ
from kvproof.models.proofs.induction import Induction
from kvproof.models.proofs.units import Unit
from kvproof.models.proofs.vacuity import firing, firings
from kvproof.models.suites import SUITES, units_of
from kvproof.models.translation.dependencies import part_of
from kvproof.models.translation.functions import NotInPart
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator
from kvproof.spec.store.machine import STORES


def unit_of(name: str, text: Text | None = None) -> Unit:
    return next(unit for unit in Induction(Translator(text=text)).units() if unit.name == name)


def test_a_unit_that_reads_more_than_its_part_is_a_fault() -> None:
    evict, append = unit_of("evict"), unit_of("append")
    assert "append" not in evict.part
    wrong = Unit(evict.suite, evict.name, evict.text, evict.roots, append.make)
    with pytest.raises(NotInPart, match="append is not in the part"):
        wrong.obligations()
    assert evict.obligations()


def test_a_unit_that_reads_another_text_is_a_fault() -> None:
    text = specification().edited("evict", "forget", "forget")
    evict = unit_of("evict", text)
    of_the_specification = Unit(evict.suite, evict.name, text, evict.roots, unit_of("evict").make)
    with pytest.raises(NotInPart):
        of_the_specification.obligations()
    with pytest.raises(NotInPart), text.functions.reading_only(text.functions):
        specification(STORES).functions["evict"]


def test_of_a_text_with_one_function_replaced_the_same_part_can_be_read() -> None:
    text = specification()
    with text.functions.reading_only({"evict", "gain"}):
        mutant = text.replaced("evict", text.functions["gain"][0])
        assert mutant.functions["evict"][0] is text.functions["gain"][0]
        with pytest.raises(NotInPart):
            mutant.functions["lose"]
    assert mutant.functions["lose"] is text.functions["lose"]


def test_which_functions_there_are_may_be_asked_and_all_can_be_read_afterwards() -> None:
    functions = specification().functions
    with functions.reading_only(()):
        assert "evict" in functions
        assert len(list(functions)) == len(functions)
        with pytest.raises(NotInPart):
            dict(functions)
    assert dict(functions)


def test_a_part_has_all_that_its_functions_name() -> None:
    text = specification()
    assert part_of(text, ["evict"]) >= {"evict", "forget"}
    assert "evict" not in part_of(text, ["forget"])
    own = text.edited("forget", "state.cached[block]", "state.cached[refcount_counts_holders(state) * block]")
    assert "refcount_counts_holders" not in own.functions  # a name that is no function of the text is none of its part
    assert part_of(own, ["forget"]) == part_of(text, ["forget"])


def test_units_of_a_suite_have_different_names() -> None:
    for suite in SUITES:
        names = [unit.name for unit in units_of(suite)]
        assert len(names) == len(set(names)) > 0


def test_a_rule_is_fired_in_its_part_of_the_text() -> None:
    assert "append" not in firing("evict").part
    assert dict(firings(["evict"])) == {"evict": True}
    assert specification().part(firing("evict").part).functions.keys() == firing("evict").part


def test_a_module_of_the_prover_reads_no_more_of_the_text_when_it_is_imported_than_the_unit_that_it_is_for() -> None:
    """What is read there would else be no part of the unit. Modules of `mapping` have formulas."""
    program = """
import importlib, pkgutil, sys
from kvproof.models.translation.dependencies import part_of
from kvproof.models.translation.text import specification
from kvproof.spec.store.machine import STORES

text, _ = specification(), specification(STORES)
parts = dict.fromkeys(("arithmetic", "refinement", "concolic", "proofs", "crosscheck", "counterexamples"), ())
for package, part in {**parts, "mapping": part_of(text, sys.argv[1:])}.items():
    with text.functions.reading_only(part):
        for one in pkgutil.iter_modules(importlib.import_module(f"kvproof.models.{package}").__path__):
            importlib.import_module(f"kvproof.models.{package}.{one.name}")
"""
    done = subprocess.run([sys.executable, "-c", program, *READ], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
