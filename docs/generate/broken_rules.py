"""Rules of stores that are broken on purpose, for the properties that only the specification is judged for.

A store shows its answers, and not in which order else its transfers could have been reported, what another tier holds,
or which groups of layers a hit was found in. So these properties are proved of the specification, and a subject that
breaks one is refuted by another property. Each example changes one line of a rule and runs the changed text.
"""

from collections.abc import Iterator
from itertools import product

from kvproof.audit.faults.edits import Edit, Fault
from kvproof.audit.faults.planting import faulty_text
from kvproof.models.translation.text import specification
from kvproof.spec.store.machine import STORES, StoreMachine, StoreSizes
from kvproof.spec.store.state import NONE, StoreState

OWNER = TIER = KEY = 0
SIZES = StoreSizes(num_blocks=2, num_tiers=2, num_keys=1, num_pins=2, num_owners=1, num_flights=2)
PREPARED = (("grow", 0, 0), ("grow", 1, 1), ("introduce", KEY, 0, [7], 1), ("begin_owner", OWNER))


def broken_rule(property: str, function: str, old: str, new: str, reason: str) -> Fault:
    """A change of a function. reason: why no judge reports the property, and what refutes a subject that breaks it."""
    return Fault(property, (Edit(function, old, new),), STORES.name, sentence=reason)


BROKEN_RULES = (
    broken_rule(
        "completion-commutes",
        "report",
        "state.phase[flight] = NONE",
        "state.phase[flight] = NONE if flight == 0 else state.phase[0]",
        "it is a claim about two orders of the same reports, and a run has one. The judge reports transfers in random "
        "orders, so a store that depends on the order is refuted by what one of them leads to, such as `conservation`",
    ),
    broken_rule(
        "tiers-agree",
        "land",
        "state.memory[source][o + back]",
        "state.memory[target][o]",
        "the judge is the worker that moves bytes between tiers. A store that names the wrong slot for a key breaks "
        "`arrived-whole`",
    ),
    broken_rule(
        "groups-agree",
        "first_needed",
        "boundary + 1 - reach",
        "boundary + 2 - reach",
        "a look-up answers with keys, not with groups. A store that promises too much breaks `arrived-whole` or "
        "`hit-written` at the load",
    ),
)


def machine_of(rule: Fault) -> StoreMachine:
    """The specification of stores with the change, in a size of one key, two tiers of a block, and two transfers."""
    text = faulty_text(rule, specification(STORES))
    return StoreMachine(SIZES, with_checks=False, text=text.functions)


def fired(machine: StoreMachine, *firings: tuple[object, ...]) -> StoreState:
    """The state after these rules. Raises AssertionError if one is refused."""
    state = machine.first_state()
    for rule, *arguments in (*PREPARED, *firings):
        assert machine.rules[str(rule)](state, *arguments) is None, (rule, arguments)
    return state


def broken_steps(rule: Fault) -> Iterator[str]:
    """What the changed text does, line by line; the last line breaks the property. Raises AssertionError if not."""
    machine = machine_of(rule)
    if rule.id == "tiers-agree":
        yield from _two_tiers(machine)
    elif rule.id == "completion-commutes":
        yield from _two_orders(machine)
    else:
        yield from _two_groups(machine)


def _stored(block: int, pin: int, flight: int) -> list[tuple[object, ...]]:
    return [("begin_store", pin, OWNER, block, KEY, NONE), ("submit_store", flight, pin), ("land", flight)]


def _two_tiers(machine: StoreMachine) -> Iterator[str]:
    firings = [
        *_stored(0, 0, 0),
        ("report", 0),
        ("commit", 0, OWNER),
        ("begin_load", 0, OWNER, TIER, KEY, NONE),
        ("begin_store", 1, OWNER, 1, KEY, NONE),
        ("submit_move", 0, 0, 1, 0, 0),
        ("land", 0),
        ("report", 0),
        ("commit", 1, OWNER),
    ]
    state = fired(machine, *firings)
    assert not machine.function("equal_keys_have_equal_content")(state)
    yield from map(_firing, firings)
    yield f"key 0 is in both tiers: block 0 holds {state.memory[0]}, block 1 holds {state.memory[1]}"


def _two_orders(machine: StoreMachine) -> Iterator[str]:
    firings = [*_stored(0, 0, 0), *_stored(1, 1, 1)]
    one = fired(machine, *firings, ("report", 0), ("report", 1))
    other = fired(machine, *firings, ("report", 1), ("report", 0))
    assert vars(one) != vars(other)
    yield from map(_firing, firings)
    yield f"report(0), then report(1): transfers that are not over: {_not_over(one)}"
    yield f"report(1), then report(0): transfers that are not over: {_not_over(other)}"


def _two_groups(machine: StoreMachine) -> Iterator[str]:
    first_needed, is_needed = StoreMachine(SIZES).function("first_needed"), machine.function("is_needed")
    for boundary, reach, stop in product(range(4, 9), range(2, 5), range(1, 9)):
        first_read = first_needed(boundary, reach)
        if first_read < stop <= boundary and not is_needed(stop, boundary, reach):
            yield f"a group with a window of {reach} tokens, and a hit of {boundary} tokens"
            yield f"the next token reads from position {first_read} on"
            yield f"the chunk that ends at position {stop} is not called needed"
            return
    raise AssertionError("the changed function is not wrong")


def _not_over(state: StoreState) -> str:
    return ", ".join(str(flight) for flight, phase in enumerate(state.phase) if phase != NONE) or "none"


def _firing(firing: tuple[object, ...]) -> str:
    """A rule with its arguments, each after its name; a time that is not set is left out."""
    rule = next(one for one in STORES.collected.rules if one.__name__ == firing[0])
    names = [name for name in rule.__annotations__ if name not in ("state", "return")]
    given = [
        f"{name} {value}" for name, value in zip(names, firing[1:], strict=True) if (name, value) != ("until", NONE)
    ]
    return f"{firing[0]}({', '.join(given)})"
