"""The obligations about stores: the induction over their rules, and that the order of reports changes nothing.

*The order of reports.* Let two rules that a report leads to be enabled in a state that satisfies the invariants, for
different transfers or pins. Then each is still enabled after the other has fired, and both orders leave the same state.
So any order of any number of reports leaves the same state. Ghost fields enumerate in some order, and are left out; a
store may also remember which block was used last, which the specification does not.

*Groups.* A hit needs some chunks of each group. Every position that the next token reads, in a group of any reach, lies
in one of these; and of a state, only the one at the boundary is needed.

*A mirror.* A tier that mirrors another one has exactly what that one counts as cached. An eviction above leaves one key
to remove below, a new entry above leaves one to add, and after the removal below there is nothing left to do.

*Leases.* A lease that has run out can end in every state, unless a transfer that is not void uses it: whatever other
pins, owners and transfers do, and however many there are. No other pin ends with it, and a block that nobody else has a
pin on can be taken then.

*A run* in which each rule fires shows that none of them is refused in every state. The proof of a rule that never fires
would say nothing. The states of this run are also models of the hypotheses.
"""

from collections.abc import Iterator
from functools import partial
from itertools import combinations_with_replacement
from typing import Any

import z3

from kvproof.models.obligation import Hypothesis, Obligation, Unit
from kvproof.models.proofs.induction import Induction, Rule, hypotheses
from kvproof.models.translation.maps import Map, SymbolicState
from kvproof.models.translation.rules import Outcome
from kvproof.models.translation.terms import Truth, conjunction, disjunction, equal, implication, negation
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Parameter, Translator
from kvproof.spec.compilation import CheckFailed
from kvproof.spec.store.domains import KEYS, PINS, TIERS
from kvproof.spec.store.machine import STORES, StoreMachine, StoreSizes
from kvproof.spec.store.state import EVICTABLE, FREE, NONE, StoreState

PROPERTY, COMMUTING, GROUPS, MIRROR, LEASES = "completion-commutes", "commuting", "groups", "mirror", "leases"
ENDING = ("land", "fail", "report", "notice", "end_load", "commit", "abort")  # the rules that a report leads to

SIZES = StoreSizes(5, num_tiers=2, num_keys=5, num_pins=6, num_owners=2, num_flights=4, num_parts=2, block_size=2)
WHOLE, SHORT = [1, 2], [3, NONE]  # contents of keys
Firing = tuple[Any, ...]

RUN: tuple[Firing, ...] = (
    *(("grow", 0, 0), ("grow", 1, 0), ("grow", 2, 1), ("begin_owner", 0), ("begin_owner", 1)),
    *(("introduce", 0, 0, WHOLE, 2), ("introduce", 1, 0, SHORT, 1)),
    *(("begin_store", 0, 0, 0, 0, NONE), ("submit_store", 0, 0), ("land", 0), ("report", 0), ("keep", 0, 0)),
    *(("begin_store", 1, 0, 2, 0, NONE), ("submit_move", 0, 0, 1, 0, 0), ("land", 0), ("report", 0)),
    *(("await_parts", 0, 1), ("notice", 0, 0)),
    *(("end_load", 0, 0), ("commit", 1, 0), ("promise", 0, 1, 1, 0, 5), ("redeem", 0, 1), ("submit_load", 0, 0)),
    *(("advance", 5), ("land", 0), ("expire", 0), ("evict", 0), ("begin_load", 0, 1, 1, 0, NONE)),
    *(("begin_store", 1, 0, 0, 1, NONE), ("submit_store", 1, 1), ("fail", 1, WHOLE), ("abort", 1, 0)),
    *(("drop", 1, 0), ("end_owner", 1), ("expire", 0)),
)

BUSY: tuple[Firing, ...] = (  # a run after which several transfers may land, fail or be reported, and several pins end
    *(("grow", block, 0) for block in range(5)),
    *(("introduce", key, 0, WHOLE, 2) for key in range(5)),
    *(("begin_owner", 0), ("begin_store", 0, 0, 0, 0, NONE), ("submit_store", 0, 0), ("land", 0), ("commit", 0, 0)),
    *(("report", 0), ("begin_load", 0, 0, 0, 0, NONE), ("begin_load", 1, 0, 0, 0, NONE)),
    *(("begin_store", pin, 0, pin - 1, pin - 1, NONE) for pin in (2, 3, 4, 5)),
    *(("submit_store", pin - 2, pin) for pin in (2, 3, 4, 5)),
    *(("begin_owner", 1), ("await_parts", 1, 2)),
    *(("land", 0), ("land", 1)),
)
AT_ONCE: dict[str, tuple[Firing, Firing]] = {  # different arguments of each rule that a report leads to, enabled then
    "land": ((2,), (3,)),
    "fail": ((2, WHOLE), (3, WHOLE)),
    "report": ((0,), (1,)),
    "notice": ((1, 0), (1, 1)),
    "end_load": ((0, 0), (1, 0)),
    "commit": ((2, 0), (3, 0)),
    "abort": ((2, 0), (3, 0)),
}


def units(text: Text | None = None) -> Iterator[Unit]:
    """The units of stores, or of another text about them."""
    text = text or specification(STORES)
    yield from Induction(Translator(text=text)).units()
    yield Unit(STORES.name, COMMUTING, partial(commuting, text))
    yield Unit(STORES.name, GROUPS, partial(_groups, Translator(text=text)))
    yield Unit(STORES.name, MIRROR, partial(_mirror, Translator(text=text)))
    yield Unit(STORES.name, LEASES, partial(_leases, Translator(text=text)))


def commuting(text: Text) -> Iterator[Obligation]:
    """Two obligations for each pair of rules: both stay enabled, and both orders leave the same state."""
    pairs = _Commuting(Translator(text=text))
    for one, other in combinations_with_replacement(ENDING, 2):
        yield from pairs.pair(one, other)


class _Commuting:
    def __init__(self, translator: Translator) -> None:
        self.translator, self.induction = translator, Induction(translator)
        self.rules: dict[str, Rule] = {rule.__name__: rule for rule in self.induction.collected.rules}

    def pair(self, one: str, other: str) -> Iterator[Obligation]:
        """The obligations of two rules, or of one rule that fires twice."""
        before, run = self.induction.before, self.translator.run
        first, second = self._parameters(one, "first"), self._parameters(other, "second")
        values, more = [each.value for each in first], [each.value for each in second]
        of_first, of_second = run(one, before, *values), run(other, before, *more)
        known = [(f"parameter {each.name}", each.known) for each in (*first, *second)]
        enabled = [("guards of the first", of_first.guard), ("guards of the second", of_second.guard)]
        assumed = self.induction.assumed + hypotheses([*known, *enabled, ("different", _are_different(first, second))])
        then, otherwise = run(other, of_first.state, *more), run(one, of_second.state, *values)
        stay = conjunction(then.guard, otherwise.guard)
        same = self._same(then.state, otherwise.state)
        for claim, goal in (("both stay enabled", stay), ("both orders leave the same state", same)):
            yield Obligation(STORES.name, COMMUTING, f"{one} and {other}: {claim}", PROPERTY, assumed, goal)

    def _parameters(self, rule: str, place: str) -> list[Parameter]:
        named: dict[str, Any] = dict(list(self.rules[rule].__annotations__.items())[1:])
        return [self.translator.unknown(f"{place}_{name}", kind) for name, kind in named.items() if name != "return"]

    def _same(self, one: SymbolicState, other: SymbolicState) -> Truth:
        """Every field that is no ghost has the same values in two states."""
        goals: list[Truth] = []
        for name, field in self.translator.system.fields.items():
            if field.kind == "ghost" or one.maps[name] is other.maps[name]:
                continue
            indexes = [z3.Int(f"{domain.name.lower()}_{place}") for place, domain in enumerate(field.domains)]
            within = conjunction(
                *(self.translator.universe.contains(*each) for each in zip(field.domains, indexes, strict=True))
            )
            goals.append(implication(within, equal(one.maps[name].read(*indexes), other.maps[name].read(*indexes))))
        return conjunction(*goals)


def _are_different(first: list[Parameter], second: list[Parameter]) -> Truth:
    """The rules are about different transfers, pins or parts. Each names its own first, and the owner of its part."""
    if first[0].domain is not second[0].domain:
        return True
    ids = [
        equal(one.value, other.value)
        for one, other in zip(first, second, strict=False)
        if not isinstance(one.value, Map) and not isinstance(other.value, Map)
    ]
    return negation(conjunction(*ids))


def _groups(translator: Translator) -> Iterator[Obligation]:
    """What a hit needs of a group is all that the next token reads."""
    stop, boundary, reach, position = z3.Ints("stop boundary reach position")
    first = translator.call("first_needed", boundary, reach).value
    needed = translator.call("is_needed", stop, boundary, reach).value
    assert isinstance(needed, z3.BoolRef)
    assert isinstance(first, z3.ArithRef)
    chunk = conjunction(0 <= position, position < stop, stop <= boundary)
    of_window = hypotheses([("a chunk", chunk), ("no state", reach >= 0), ("it is read", first <= position)])
    claim = "a chunk with a position that the next token reads is needed"
    yield Obligation(STORES.name, GROUPS, claim, "groups-agree", of_window, needed)
    of_state = hypotheses([("a state", reach < 0)])
    claim = "of states, the one at the boundary is needed"
    yield Obligation(STORES.name, GROUPS, claim, "groups-agree", of_state, equal(needed, stop == boundary))


ABOVE, BELOW = 0, 1  # the tiers of the obligations about mirrors; tiers are names, so any two are like these


def _mirror(translator: Translator) -> Iterator[Obligation]:
    """What is left to do below after an eviction or a new entry above, and that a removal below does it."""
    induction = Induction(translator)
    before, rules = induction.before, {rule.__name__: rule for rule in induction.collected.rules}

    def fired(rule: str) -> tuple[Any, Outcome, tuple[Hypothesis, ...]]:
        """The first argument of the rule, the state after it, and what is assumed before."""
        parameters = list(translator.parameters(rules[rule]))
        outcome = translator.run(rule, before, *(each.value for each in parameters))
        known = [(f"parameter {each.name}", each.known) for each in parameters]
        known.append(("there are two tiers", translator.universe.contains(TIERS, BELOW)))
        known += [("guards", outcome.guard), ("mirrored before", _truth(translator, "mirrors", before))]
        return parameters[0].value, outcome, induction.assumed + hypotheses(known)

    block, evicted, known = fired("evict")
    key = before.maps["key"].read(block)
    mine = before.maps["entry"].read(BELOW, key)
    is_above = ("the tier above evicts", equal(before.maps["tier"].read(block), ABOVE))
    known += hypotheses([is_above, ("nobody reads it below", equal(before.maps["status"].read(mine), EVICTABLE))])
    then = translator.run("evict", evicted.state, mine)
    claims = {
        "evict: that key, and no other, must go below": _left(translator, evicted.state, key, "must_go"),
        "evict: it can be removed below": then.guard,
        "evict: mirrored after the removal below": _truth(translator, "mirrors", then.state),
    }
    for claim, goal in claims.items():
        yield Obligation(STORES.name, MIRROR, claim, "events-agree", known, goal)
    pin, kept, known = fired("keep")
    written = before.maps["pinned"].read(pin)
    known += hypotheses([("the tier above has it", equal(before.maps["tier"].read(written), ABOVE))])
    claim = "keep: that key, and no other, must come below"
    goal = _left(translator, kept.state, before.maps["key"].read(written), "must_come")
    yield Obligation(STORES.name, MIRROR, claim, "events-agree", known, goal)


def _leases(translator: Translator) -> Iterator[Obligation]:
    """A lease that has run out, and that no transfer uses that is not void then, can end, and ends alone."""
    induction = Induction(translator)
    before, rules = induction.before, {rule.__name__: rule for rule in induction.collected.rules}
    (parameter,) = translator.parameters(rules["expire"])
    pin: Any = parameter.value
    other, block = z3.Int("other_pin"), before.maps["pinned"].read(pin)
    outcome = translator.run("expire", before, pin)
    after = outcome.state.maps

    def holds(predicate: str) -> Any:
        return translator.call(predicate, before, pin, has_demands=False).value

    is_unused = equal(before.maps["mover"].read(pin), NONE)
    known = induction.assumed + hypotheses(
        [
            ("parameter pin", parameter.known),
            ("the pin has not ended", negation(equal(before.maps["kind"].read(pin), NONE))),
            ("its lease has run out", holds("is_over")),
            ("no transfer uses it, or one that will be void", disjunction(is_unused, holds("is_under_a_move"))),
        ]
    )
    status, reads = after["status"].read(block), before.maps["reads"].read(block)
    assert isinstance(reads, z3.ArithRef)
    can_be_taken = disjunction(equal(status, FREE), equal(status, EVICTABLE))
    another = conjunction(translator.universe.contains(PINS, other), negation(equal(other, pin)))
    stays = equal(after["kind"].read(other), before.maps["kind"].read(other))
    claims = {
        "it can end": outcome.guard,
        "it ends": equal(after["kind"].read(pin), NONE),
        "its block can be taken if nobody else has a pin on it": implication(reads <= 1, can_be_taken),
        "no other pin ends with it": implication(another, stays),
    }
    for claim, goal in claims.items():
        yield Obligation(STORES.name, LEASES, claim, "lease-ends", known, goal)


def _truth(translator: Translator, name: str, state: SymbolicState, *more: Any) -> Any:
    return translator.call(name, state, ABOVE, BELOW, *more, has_demands=False).value


def _left(translator: Translator, state: SymbolicState, key: Any, todo: str) -> Truth:
    """The one thing left to do below is about that key."""
    other, kinds = z3.Int("key_0"), ("must_go", "must_come")
    nothing = conjunction(*(negation(_truth(translator, kind, state, other)) for kind in kinds))
    elsewhere = conjunction(translator.universe.contains(KEYS, other), negation(equal(other, key)))
    return conjunction(_truth(translator, todo, state, key), implication(elsewhere, nothing))


class NotFired(Exception):
    """A rule is refused, or leaves a state that breaks a claim. The message says which."""


def machine_of(text: Text | None = None) -> StoreMachine:
    """The machine on which the runs are made."""
    return StoreMachine(SIZES, text=(text or specification(STORES)).functions)


def fired(machine: StoreMachine, run: tuple[Firing, ...] = RUN) -> Iterator[tuple[StoreState, str, Firing, StoreState]]:
    """Each firing of a run, with the states before and after it. Raises NotFired."""
    state = machine.first_state()
    for rule, *arguments in run:
        before = machine.copy(state)
        try:
            refused = machine.rules[rule](state, *arguments)
        except CheckFailed as error:
            raise NotFired(f"{rule}{tuple(arguments)}: {error}") from error
        if refused is not None:
            raise NotFired(f"{rule}{tuple(arguments)} is refused: {refused.sentence}")
        if broken := machine.broken_claims(state):
            raise NotFired(f"{rule}{tuple(arguments)} breaks {', '.join(broken)}")
        yield before, rule, tuple(arguments), state
