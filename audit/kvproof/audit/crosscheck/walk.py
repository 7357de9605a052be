"""Random walks over the rules of the specification, in small states, by a seed: the states in which it is compared.

The next rule is the one that has fired least often, of those for which drawn arguments are enabled. Where a rule is
refused, that is compared too. Some states are *corrupted*: one cell gets another value of its domain. In such a state
claims are false, checks fail and subscripts are out of range, and the readers must agree about that as well.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from inspect import signature
from random import Random
from typing import Any, get_args, get_origin

from kvproof.audit.crosscheck.comparison import Crosscheck, ListEnds, Situation, SymbolicRule, run_natively
from kvproof.models.counterexamples.replay import watched
from kvproof.spec.native import MachineOf
from kvproof.spec.sizes import Sizes, SizesOf
from kvproof.spec.store.machine import STORES, StoreSizes

SIZES = (
    Sizes(num_gpu_blocks=3, num_host_blocks=2, block_size=2, num_seqs=3, num_indexes=3, num_flights=2),
    Sizes(num_gpu_blocks=4, num_host_blocks=3, block_size=3, num_seqs=2, num_indexes=4, num_flights=1),
    Sizes(num_gpu_blocks=2, num_host_blocks=2, block_size=1, num_seqs=2, num_indexes=4, num_flights=2),
)
SIZES_OF_STORES = (
    StoreSizes(
        num_blocks=4, num_tiers=2, num_keys=3, num_groups=2, num_pins=4, num_owners=2, num_parts=2, block_size=2
    ),
    StoreSizes(num_blocks=3, num_tiers=1, num_keys=2, num_pins=3, num_owners=2, num_flights=2, block_size=1),
)
STEPS_OF_ONE_WALK = 80
DRAWS = 120  # of arguments for one rule in one state
NUM_IDENTITIES = 2  # few, so that contents are often equal
WEIGHTS = {  # of a rule against the others, which have 1; so that states stay full, and rare situations are used
    **dict.fromkeys(("set_aside", "widen", "skip", "copy_out"), 0.25),
    **dict.fromkeys(("begin_free", "drop_last", "finish", "slide", "launch", "land"), 0.3),
    **dict.fromkeys(("append", "compute", "promote", "mark_computed"), 3.0),
    **dict.fromkeys(("hit", "share", "exchange", "follow_entry", "rehit_entry", "evict"), 30.0),
}
WEIGHTS_OF_STORES = {
    **dict.fromkeys(("drop", "end_owner", "expire", "advance", "abort", "evict", "fail"), 0.1),
    **dict.fromkeys(("submit_load", "end_load"), 0.3),
    **dict.fromkeys(("submit_store", "submit_move", "land", "keep", "commit", "redeem"), 30.0),
}


class Arguments:
    """Draws arguments of rules, by their annotations. least: -1, to draw counts outside their domain too."""

    def __init__(self, random: Random, situation: Situation, least: int = 0) -> None:
        self.least = least
        self.random, self.names, self.state = random, situation.machine.names, situation.state
        self.is_of_store = situation.machine.system is STORES

    def drawn(self, annotations: Mapping[str, Any]) -> Iterator[list[Any]]:
        """Several lists with a value for each parameter; all of them, if there are few and no parameter is a row."""
        ranges = [self._range(annotation) for annotation in annotations.values()]
        known = [one for one in ranges if one is not None]
        if len(known) < len(ranges) or math.prod(map(len, known)) > DRAWS:
            for _ in range(DRAWS):
                named: dict[str, Any] = {}
                for name, numbers in zip(annotations, ranges, strict=True):
                    named[name] = self._row(named) if numbers is None else self.random.choice(numbers)
                yield list(named.values())
        else:
            found = [list(one) for one in itertools.product(*known)]
            self.random.shuffle(found)
            yield from found

    def _range(self, annotation: Any) -> range | None:
        """The numbers that are tried for a parameter; None for a row."""
        base, domain = get_args(annotation)
        if get_origin(base) is list:
            return None
        if domain.size is None:
            end = int(self.names["BLOCK_SIZE"]) + 2
            return range(-end if domain.is_signed else self.least, end)
        return range(int(self.names[domain.size]) if isinstance(domain.size, str) else domain.size)

    def _row(self, named: Mapping[str, Any]) -> list[int]:
        """A row: the content of a block that was drawn, or of any, or the tokens of a sequence, or a new row."""
        content: list[list[int]] = self.state.content
        match self.random.randrange(4):
            case 0:
                at = named.get("key", named.get("block", named.get("twin")))
                return content[self.random.randrange(len(content)) if at is None else at][:]
            case 1:
                known: list[list[int]] = (
                    self.state.memory if self.is_of_store else self.random.choice(self.state.tokens)
                )
                return self.random.choice(known)[:]
            case _:
                return [self.random.randrange(1, NUM_IDENTITIES + 1) for _ in range(int(self.names["BLOCK_SIZE"]))]


def corrupted(random: Random, machine: MachineOf[Any], state: Any) -> Any:
    """A copy of the state in which one cell has another value of its domain, or NONE."""
    found = machine.copy(state)
    fields = machine.system.fields
    name = random.choice([name for name in fields if getattr(state, name)])
    to, rows = fields[name].to, getattr(found, name)
    for _ in fields[name].domains[:-1]:
        index = random.randrange(len(rows))
        rows[index] = rows[index][:]  # rows of slots are shared with the state
        rows = rows[index]
    if to.name == "Flag":
        values: list[int] = [False, True]
    else:
        size = machine.names[to.size] if isinstance(to.size, str) else to.size or machine.names["BLOCK_SIZE"] + 2
        values = list(range(-size if fields[name].to.is_signed else -1, size))
    place = random.randrange(len(rows))
    rows[place] = random.choice([value for value in values if value != rows[place]])
    return found


class Walk:
    """Walks in machines of one size. fired: how often each rule fired in a reached state."""

    def __init__(self, crosscheck: Crosscheck, sizes: SizesOf[Any], seed: int) -> None:
        self.crosscheck, self.random = crosscheck, Random(seed)
        self.machine = crosscheck.machine(sizes)
        self.annotations = {
            rule.__name__: {one.name: one.annotation for one in list(signature(rule).parameters.values())[1:]}
            for rule in sizes.system.collected.rules
        }
        self.weights = WEIGHTS_OF_STORES if sizes.system is STORES else WEIGHTS
        self.fired = Counter[str]()

    def rule(self, name: str) -> SymbolicRule:
        """The translated rule."""
        return self.crosscheck.rule(name, self.annotations[name])

    def steps(self) -> Iterator[tuple[Situation, SymbolicRule, list[Any]]]:
        """The reached states of one walk, each with an enabled rule and its arguments, which then fires."""
        state = self.machine.first_state()
        for _ in range(STEPS_OF_ONE_WALK):
            situation = Situation(self.machine, state)
            found = self._enabled(situation)
            if found is None:
                return
            name, arguments = found
            yield situation, self.rule(name), arguments
            state = self.machine.copy(state)
            self.machine.rules[name](state, *arguments)
            self.fired[name] += 1

    def _enabled(self, situation: Situation) -> tuple[str, list[Any]] | None:
        """A rule with arguments for which it is enabled, if it then stays within the lists of the state."""
        draw, scratch = Arguments(self.random, situation), watched(situation.state, situation.machine.system)
        for name in sorted(self.annotations, key=self._rank):
            for arguments in draw.drawn(self.annotations[name]):
                try:
                    found = run_natively(self.machine.rules[name], scratch, *arguments)
                except ListEnds:
                    scratch = watched(situation.state, situation.machine.system)
                    continue
                if found is None:
                    return name, arguments
        return None

    def _rank(self, name: str) -> float:
        """A random number; it is small for rules of much weight that have fired seldom."""
        return -math.pow(self.random.random(), (1 + self.fired[name]) / self.weights.get(name, 1.0))
