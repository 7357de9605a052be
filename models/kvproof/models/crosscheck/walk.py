"""Random walks over the rules of the specification, in small states, by a seed: the states in which it is compared.

The next rule is the one that has fired least often, of those for which drawn arguments are enabled. Where a rule is
refused, that is compared too. Some states are *corrupted*: one cell gets another value of its domain. In such a state
claims are false, checks fail and subscripts are out of range, and the readers must agree about that as well.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from inspect import signature
from random import Random
from typing import Any, get_args, get_origin

from kvproof.models.counterexamples.replay import watched
from kvproof.models.crosscheck.comparison import Crosscheck, ListEnds, Situation, SymbolicRule, run_natively
from kvproof.spec.language import COLLECTED, Domain
from kvproof.spec.native import FIELDS, Machine, Sizes
from kvproof.spec.text.state import State

SIZES = (
    Sizes(num_gpu_blocks=3, num_host_blocks=2, block_size=2, num_seqs=3, num_indexes=3, num_flights=2),
    Sizes(num_gpu_blocks=4, num_host_blocks=3, block_size=3, num_seqs=2, num_indexes=4, num_flights=1),
    Sizes(num_gpu_blocks=2, num_host_blocks=2, block_size=1, num_seqs=2, num_indexes=4, num_flights=2),
)
STEPS_OF_ONE_WALK = 80
DRAWS = 60  # of arguments for one rule in one state
REFUSALS = 2  # that are compared in each state
NUM_IDENTITIES = 3  # few, so that contents are often equal


class Arguments:
    """Draws arguments of rules, by their annotations."""

    def __init__(self, random: Random, situation: Situation) -> None:
        self.random, self.names = random, situation.machine.names
        state = situation.state
        rows = [*state.content, *state.memory, *(row for table in state.tokens for row in table)]
        self.rows = [list(row) for row in dict.fromkeys(map(tuple, rows))]

    def drawn(self, annotations: Mapping[str, Any]) -> list[Any]:
        """A value for each parameter."""
        return [self._of(annotation) for annotation in annotations.values()]

    def _of(self, annotation: Any) -> Any:
        base, *domains = get_args(annotation)
        if get_origin(base) is list:
            return self._row(self.names["BLOCK_SIZE"])
        return self.random.randrange(self._size(domains[0]))

    def _size(self, domain: Domain) -> int:
        if domain.size is None:
            return int(self.names["BLOCK_SIZE"]) + 1
        return int(self.names[domain.size]) if isinstance(domain.size, str) else domain.size

    def _row(self, length: int) -> list[int]:
        if self.random.random() < 0.6:
            return self.random.choice(self.rows)[:]
        return [self.random.randrange(1, NUM_IDENTITIES + 1) for _ in range(length)]


def corrupted(random: Random, machine: Machine, state: State) -> State:
    """A copy of the state in which one cell has another value of its domain, or NONE."""
    found = machine.copy(state)
    name = random.choice([name for name in FIELDS if getattr(state, name)])
    to, rows = FIELDS[name].to, getattr(found, name)
    for _ in FIELDS[name].domains[:-1]:
        index = random.randrange(len(rows))
        rows[index] = rows[index][:]  # rows of slots are shared with the state
        rows = rows[index]
    if to.name == "Flag":
        values: list[int] = [False, True]
    else:
        size = machine.names[to.size] if isinstance(to.size, str) else to.size or machine.sizes.block_size + 2
        values = list(range(-1, size))
    place = random.randrange(len(rows))
    rows[place] = random.choice([value for value in values if value != rows[place]])
    return found


class Walk:
    """Walks in machines of one size. fired: how often each rule fired in a reached state."""

    def __init__(self, crosscheck: Crosscheck, sizes: Sizes, seed: int) -> None:
        self.crosscheck, self.random = crosscheck, Random(seed)
        self.machine = crosscheck.machine(sizes)
        self.annotations = {
            rule.__name__: {one.name: one.annotation for one in list(signature(rule).parameters.values())[1:]}
            for rule in COLLECTED.rules
        }
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
        draw, scratch = Arguments(self.random, situation), watched(situation.state)
        for name in sorted(self.annotations, key=lambda name: (self.fired[name], self.random.random())):
            for _ in range(DRAWS):
                arguments = draw.drawn(self.annotations[name])
                try:
                    found = run_natively(self.machine.rules[name], scratch, *arguments)
                except ListEnds:
                    scratch = watched(situation.state)
                    continue
                if found is None:
                    return name, arguments
        return None
