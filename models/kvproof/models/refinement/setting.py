"""The common start of all simulations: any state that satisfies the invariants, and arbitrary parts of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import z3

from kvproof.models.obligation import Hypothesis
from kvproof.models.proofs.induction import hypotheses
from kvproof.models.refinement.abstraction import Abstraction, Code, as_truth
from kvproof.models.refinement.cuts import of_any_number
from kvproof.models.translation.maps import SymbolicState
from kvproof.models.translation.terms import every
from kvproof.models.translation.translator import Translator
from kvproof.spec.text.state import GPU

# The invariants that the arrays rely on; the others are about contents, windows and flights.
RELIED_ON = (
    "lengths_are_ordered",
    "tables_name_blocks",
    "position_is_the_inverse_table",
    "entries_are_in_their_pool",
    "every_holder_is_counted",
    "status_tells_who_refers",
    "every_block_is_listed",
    "only_such_blocks_are_listed",
    "counters_add_up",
)

SMALL_NUMBERS = range(-1, 8)  # the numbers that stand for all in a small instance


@dataclass(frozen=True)
class Setting:
    """An arbitrary state before a step, with an arbitrary sequence, table index and block."""

    translator: Translator = field(default_factory=Translator)
    code: Code = field(default_factory=Code)

    def __post_init__(self) -> None:
        before = self.translator.unknown_state()
        sizes = ((f"sizes: {one}", one) for one in self.translator.universe.assumptions())
        invariants = ((name, self.translator.holds(name, before)) for name in RELIED_ON)
        assumed = [*hypotheses(sizes), *hypotheses(invariants)]
        abstraction = Abstraction(self.translator.universe, self.code)
        for name, formula in abstraction.nothing_else(before):
            assumed.append(Hypothesis(name, formula))
        for name, formula in abstraction.fits(before):
            assumed.append(Hypothesis(name, formula))
        made: dict[str, Any] = {
            "before": before,
            "assumed": tuple(assumed),
            "abstraction": abstraction,
            "seq": z3.Int("given_seq"),
            "index": z3.Int("given_index"),
            "block": z3.Int("given_block"),
        }
        for name, value in made.items():
            object.__setattr__(self, name, value)

    before: SymbolicState = field(init=False)
    assumed: tuple[Hypothesis, ...] = field(init=False)
    abstraction: Abstraction = field(init=False)
    seq: z3.ArithRef = field(init=False)
    index: z3.ArithRef = field(init=False)
    block: z3.ArithRef = field(init=False)

    @property
    def sizes(self) -> tuple[z3.BoolRef, ...]:
        """Conditions on the sizes for a replay: two slots in a block, then one, then any number."""
        size = self.abstraction.size("BLOCK_SIZE")
        return size == 2, size == 1, size > 2

    @property
    def is_seq(self) -> Hypothesis:
        """The hypothesis that `seq` is the id of a sequence."""
        return Hypothesis("parameter seq", z3.And(self.seq >= 0, self.seq < self.abstraction.size("NUM_SEQS")))

    @property
    def is_block(self) -> Hypothesis:
        """The hypothesis that `block` is a block of the GPU."""
        return Hypothesis(
            "parameter block", z3.And(self.block >= 0, self.block < self.abstraction.size("NUM_GPU_BLOCKS"))
        )

    @property
    def is_on_gpu(self) -> Hypothesis:
        """The hypothesis that the sequence is live, at rest, and has its blocks on the GPU."""
        return Hypothesis(
            "the table is one of the GPU",
            z3.And(self.spec_function("at_rest", self.seq), self.read("home", self.seq) == GPU),
        )

    def spec_function(self, name: str, *arguments: Any) -> z3.BoolRef:
        """A predicate of the specification, of the state before."""
        return as_truth(self.translator.run(name, self.before, *arguments).value)

    def read(self, field: str, *indexes: z3.ArithRef | int) -> z3.ArithRef:
        """The value of a field of numbers before the step."""
        return self.abstraction.read(self.before, field, *indexes)

    def after(self, name: str, *arguments: Any) -> SymbolicState:
        """The state after a rule or step."""
        return self.translator.run(name, self.before, *arguments).state

    def everywhere(self, holds: Callable[[z3.ArithRef], z3.BoolRef]) -> z3.BoolRef:
        """The formula that `holds` is true of every number: in a small instance, of every index and block there."""
        if self.translator.universe.is_concrete:
            return every(holds(z3.IntVal(number)) for number in SMALL_NUMBERS)
        return of_any_number(holds)

    def no_free_block(self) -> z3.BoolRef:
        """An arbitrary block does not satisfy the guard for taking a free block."""
        return z3.Not(self.spec_function("free_in", z3.Int("some_block"), GPU))
