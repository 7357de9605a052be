"""Weakenings of the specification's text: changes after which everything that is left may still be proved.

A proof notices a rule that breaks a claim. It does not notice a claim that asks less. So these changes are planted too:

theorems, invariants   the claim is `True`, or one of its conjuncts is missing
checks                 a rule or step loses one of its checks
guards                 a rule refuses the first id of one of its parameters
contracts              the precondition is stronger; the loop invariant, the postcondition or a choice loses a
                       conjunct; a choice refuses the first id; nothing is ever left; or it can always go on

A weakening replaces a function of the text by its new source. `faults/catalogue/by_hand.toml` has further ones.
"""

import ast
import copy
from collections.abc import Iterator, Sequence
from functools import cache

from kvproof.audit.faults.catalogue import EXPLORER, PIN
from kvproof.audit.faults.edits import Edit, Fault
from kvproof.audit.faults.planting import source_of
from kvproof.audit.mutation.operators import SYSTEMS, row_of
from kvproof.models.translation.text import Text, returned, specification
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import Contract
from kvproof.spec.store.machine import STORES
from kvproof.spec.syntax_trees import called
from kvproof.spec.systems import BLOCK_MANAGERS

THEOREMS, INVARIANTS, CHECKS, GUARDS, OF_CONTRACTS = "theorems", "invariants", "checks", "guards", "contracts"
IDS = {  # parameters that are ids, of rules and of contracts
    BLOCK_MANAGERS.name: ("seq", "block", "flight", "child"),
    STORES.name: ("pin", "owner", "part", "block", "tier", "key", "flight", "read", "write"),
}


def weakening(suite: str, kind: str, name: str, before: ast.FunctionDef, after: str) -> Fault:
    """The fault in which the source of one function of a specification is another."""
    row = row_of(suite, kind)
    edit = Edit(before.name, source_of(before), after)
    return Fault(f"{row}/{name}", (edit,), suite, row, row, found_by=(EXPLORER, PIN) if kind == GUARDS else (PIN,))


@cache
def weakenings(suite: str = BLOCK_MANAGERS.name) -> tuple[Fault, ...]:
    """Every weakening that is made from the text of a specification."""
    return tuple(_weakenings(suite))


def _weakenings(suite: str) -> Iterator[Fault]:
    text, collected = specification(SYSTEMS[suite]), SYSTEMS[suite].collected
    for kind, claims in ((THEOREMS, collected.theorems), (INVARIANTS, collected.invariants)):
        for claim in claims:
            yield from _less(kind, text, claim.name)
    for name in dict.fromkeys(one.__name__ for one in (*collected.rules, *collected.steps)):
        yield from _without_checks(text, name)
    for rule in collected.rules:
        yield from _stronger_guards(text, rule.__name__)
    for contract in contracts_of(suite):
        yield from _contract(text, contract)


def contracts_of(suite: str) -> Sequence[Contract]:
    """The contracts of a specification, which are imported here."""
    return CONTRACTS if suite == BLOCK_MANAGERS.name else SYSTEMS[suite].collected.contracts


def _returning(kind: str, text: Text, name: str, what: str, value: ast.expr) -> Fault:
    function, _ = text.functions[name]
    return weakening(text.system.name, kind, f"{name}: {what}", function, source_of(function, [ast.Return(value)]))


def _less(kind: str, text: Text, name: str, also_true: bool = True) -> Iterator[Fault]:
    """The predicate is `True`, or without one of its conjuncts, those within `all(…)` included."""
    whole = returned(text.functions[name][0])
    assert whole is not None
    if also_true:
        yield _returning(kind, text, name, "True", ast.Constant(True))
    for number, node in enumerate(_conjunctions(whole)):
        for place, part in enumerate(node.values):
            changed = copy.deepcopy(whole)
            values = list(_conjunctions(changed))[number].values
            del values[place]
            yield _returning(kind, text, name, f"without {ast.unparse(part)}", changed)


def _conjunctions(node: ast.expr) -> Iterator[ast.BoolOp]:
    """The expression if it is a conjunction, and those of which it says that they hold for all."""
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            yield node
            for value in values:
                yield from _conjunctions(value)
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp(elt=element)]):
            yield from _conjunctions(element)
        case ast.Call(func=ast.Name(id="implies"), args=[_, conclusion]):
            yield from _conjunctions(conclusion)


def _without_checks(text: Text, name: str) -> Iterator[Fault]:
    function, _ = text.functions[name]
    checks = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and called(node) == "check"]
    for place, check in enumerate(checks):
        changed = copy.deepcopy(function)
        found = [node for node in ast.walk(changed) if isinstance(node, ast.stmt) and called(node) == "check"]
        found[place].value = ast.Constant(None)  # type: ignore[attr-defined]  # a statement that is one call
        yield weakening(text.system.name, CHECKS, f"{name}: without {ast.unparse(check)}", function, source_of(changed))


def _stronger_guards(text: Text, rule: str) -> Iterator[Fault]:
    function, _ = text.functions[rule]
    for one in [each.arg for each in function.args.args if each.arg in IDS[text.system.name]]:
        (guard,) = ast.parse(f"require({one} != 0, 'the {one} is not the first')").body
        source = source_of(function, [guard, *function.body])
        yield weakening(text.system.name, GUARDS, f"{rule}: {one} != 0", function, source)


def _contract(text: Text, contract: Contract) -> Iterator[Fault]:
    """The weakenings of one contract. Its functions may belong to several contracts; each is changed for all."""
    yield from _stronger(text, contract.precondition, "BLOCK_SIZE > 1")
    yield _returning(OF_CONTRACTS, text, contract.variant, "nothing is left", ast.Constant(0))
    yield from _less(OF_CONTRACTS, text, contract.loop_invariant)
    yield from _less(OF_CONTRACTS, text, contract.name)
    for _, choice in contract.firings:
        if choice is not None:
            yield from _less(OF_CONTRACTS, text, choice, also_true=False)
            names = [one.arg for one in text.functions[choice][0].args.args if one.arg in IDS[text.system.name]]
            for name in names:
                yield from _stronger(text, choice, f"{name} != 0")
    if contract.can_choose is not None:
        yield _returning(OF_CONTRACTS, text, contract.can_choose, "True", ast.Constant(True))


def _stronger(text: Text, name: str, further: str) -> Iterator[Fault]:
    whole = returned(text.functions[name][0])
    assert whole is not None
    value = ast.BoolOp(ast.And(), [whole, ast.parse(further, mode="eval").body])
    yield _returning(OF_CONTRACTS, text, name, f"and {further}", value)
