"""The source code that the arithmetic theorems are about: functions of the implementation and of the specification.

The theorems are built from a `Sources` object. A mutant is another one in which one function is replaced, so a test can
find out which theorems fail when the source changes.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

from kvproof.impl.admission import admission, admission_from_host
from kvproof.impl.block_arithmetic import (
    num_blocks_for,
    num_blocks_that_fit,
    num_cpu_blocks,
    num_gpu_blocks,
    num_window_blocks,
)
from kvproof.impl.block_manager import SelfAttnBlockSpaceManager
from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.impl.growth import Growth
from kvproof.impl.kv_layout import KVBlockShape, block_bytes
from kvproof.impl.vllm_api.block_table import BlockTable
from kvproof.models.obligation import WELL_DEFINED, Hypothesis, Obligation
from kvproof.models.translation.conditions import Demand
from kvproof.models.translation.integer_functions import Translated, source_of, translate_expression, translate_function
from kvproof.models.translation.rules import Run
from kvproof.models.translation.sizes import Universe
from kvproof.models.translation.terms import are_same, every
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator

FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__qualname__: function
    for function in (
        num_blocks_for,
        num_window_blocks,
        num_blocks_that_fit,
        admission,
        admission_from_host,
        num_gpu_blocks,
        num_cpu_blocks,
        block_bytes,
        BlockTable.get_num_required_blocks,
        BlockTable.get_num_blocks_touched_by_append_slots,
        BlockTable._first_kept,
        DeviceBlocks.take,
        Growth.first_kept,
        Growth.num_needed,
        Growth.append,
        Growth.append_within_block,
        SelfAttnBlockSpaceManager._num_prompt_blocks,
        SelfAttnBlockSpaceManager.swap_in,
        SelfAttnBlockSpaceManager.swap_out,
        KVBlockShape.typed,
        KVBlockShape.planes,
    )
}

UNIVERSE = Universe()
BLOCK_SIZE = z3.Int("BLOCK_SIZE")
SIZES = Hypothesis("a block has a slot", BLOCK_SIZE >= 1)


def require_at_least(name: str, value: int, least: int) -> None:
    """Stands for `kvproof.impl.errors.require_at_least` in the proofs, which are about integers only."""
    if value < least:
        raise ValueError


@dataclass(frozen=True)
class Sources:
    """The source: functions of the implementation by qualified name, and the text of the specification."""

    functions: Mapping[str, Callable[..., Any]] = field(default_factory=lambda: FUNCTIONS)
    text: Text = field(default_factory=specification)


class Subject:
    """The subject of a group of obligations: makes them, and collects what is needed for them to be well-defined.

    always: hypotheses of every obligation.
    """

    def __init__(self, name: str, sources: Sources, property: str, *always: Hypothesis) -> None:
        self.name, self.sources, self.property, self.always = name, sources, property, always
        self.demands: list[Demand] = []

    def function(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The term for a call of a function of the implementation."""
        return self._value(
            translate_function(self.sources.functions[name], arguments, {"require_at_least": require_at_least})
        )

    def local(self, function: str, name: str, arguments: Mapping[str, Any]) -> Any:
        """The term for the value that a function first assigns to a local name."""
        source = self.sources.functions[function]
        return self._value(translate_expression(source, assigned(source, name), arguments))

    def condition(self, function: str, consequence: str, arguments: Mapping[str, Any]) -> Any:
        """The term for the condition of the `if` with a statement that begins with `consequence`."""
        source = self.sources.functions[function]
        return self._value(translate_expression(source, condition_of(source, consequence), arguments))

    def expression(self, function: str, node: ast.expr, arguments: Mapping[str, Any]) -> Any:
        """The term for an expression in a function."""
        return self._value(translate_expression(self.sources.functions[function], node, arguments))

    def spec_function(self, name: str, *arguments: Any) -> Any:
        """The term for a call of a predicate or function of the specification."""
        translator = Translator(text=self.sources.text)
        run = Run(self.sources.text, UNIVERSE, translator.unknown_state())
        return run.call(name, *arguments).value

    def claim(
        self, claim: str, goal: z3.BoolRef | bool, *hypotheses: Hypothesis, property: str | None = None
    ) -> Obligation:
        """An obligation, under the hypotheses of the subject and these."""
        return Obligation("arithmetic", self.name, claim, property or self.property, (*self.always, *hypotheses), goal)

    def well_defined(self, *hypotheses: Hypothesis) -> Iterator[Obligation]:
        """Obligations: in all terms made so far, every divisor is positive and no `raise` is reached."""
        for number, demand in enumerate(self.demands, 1):
            goal = demand.formula
            yield Obligation(
                "arithmetic",
                self.name,
                f"defined {number}: {demand.text}",
                WELL_DEFINED,
                (*self.always, *hypotheses),
                goal,
                demand.place,
            )

    def _value(self, translated: Translated) -> Any:
        for demand in translated.demands:
            if not any(are_same(demand.formula, known.formula) for known in self.demands):
                self.demands.append(demand)
        return translated.value


def non_negative(*numbers: z3.ArithRef) -> Hypothesis:
    """The hypothesis that these counts are at least 0."""
    return Hypothesis("counts", every(number >= 0 for number in numbers))


def assigned(function: Callable[..., Any], name: str, *, last: bool = False) -> ast.expr:
    """The expression that a function first (or last) assigns to a local name, also in a tuple assignment.

    Raises LookupError if there is none.
    """
    found: list[ast.expr] = []
    for node in ast.walk(source_of(function)):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    found.append(node.value)
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    sides = zip(target.elts, node.value.elts, strict=True)
                    found += [value for one, value in sides if isinstance(one, ast.Name) and one.id == name]
    if not found:
        raise LookupError(f"{function.__qualname__} assigns nothing to {name}; adapt the obligation to the code")
    found.sort(key=lambda value: value.lineno)
    return found[-1 if last else 0]


def added(function: Callable[..., Any], name: str) -> ast.expr:
    """The expression that a function first adds to a local name with `+=`. Raises LookupError if there is none."""
    sums = [
        node
        for node in ast.walk(source_of(function))
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and ast.unparse(node.target) == name
    ]
    if not sums:
        raise LookupError(f"{function.__qualname__} adds nothing to {name}; adapt the obligation to the code")
    return min(sums, key=lambda node: node.lineno).value


def condition_of(function: Callable[..., Any], consequence: str) -> ast.expr:
    """The condition of the innermost `if` with a statement that begins with this text. Raises LookupError."""
    found = [
        node.test
        for node in ast.walk(source_of(function))
        if isinstance(node, ast.If) and any(ast.unparse(one).startswith(consequence) for one in node.body)
    ]
    if not found:
        raise LookupError(f"{function.__qualname__} has no `if` with {consequence}; adapt the obligation to the code")
    return found[-1]


def returned_pair(function: Callable[..., Any]) -> tuple[ast.expr, ast.expr]:
    """The two elements of the pairs in the list that a function returns. Raises LookupError."""
    for node in ast.walk(source_of(function)):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.ListComp):
            pair = node.value.elt
            if isinstance(pair, ast.Tuple) and len(pair.elts) == 2:
                return pair.elts[0], pair.elts[1]
    raise LookupError(f"{function.__qualname__} returns no list of pairs; adapt the obligation to the code")
