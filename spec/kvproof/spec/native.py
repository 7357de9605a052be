"""The specification run natively: its states, and machines that hold its compiled functions for given sizes."""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MappingProxyType
from typing import Any, Generic, TypeVar

from kvproof.spec.compilation import Guard, define, names_of, namespace
from kvproof.spec.language import Field
from kvproof.spec.sizes import Sizes, SizesOf
from kvproof.spec.syntax_trees import Functions, contract_functions
from kvproof.spec.systems import BLOCK_MANAGERS, System
from kvproof.spec.text.state import State

FIELDS = BLOCK_MANAGERS.fields
DOMAINS = BLOCK_MANAGERS.domains
AnyState = TypeVar("AnyState")
Rule = Callable[..., Guard | None]


def _depth(f: Field) -> int:
    """The levels of lists that a copy of the field must copy. Rows of slots are never changed in place."""
    return len(f.domains) - (f.domains[-1].name == "Slot")


def _kept_fields(system: System, with_ghosts: bool) -> dict[str, Field]:
    return {name: f for name, f in system.fields.items() if with_ghosts or f.kind != "ghost"}


SPARSE_MIN = 16_384  # blocks from which on the row of a sequence is sparse; worlds that are drawn have fewer


@functools.cache
def _copier(system: System, with_ghosts: bool, unwritten: frozenset[str]) -> Callable[[Any], Any]:
    """The function that copies a state. The copies share the fields that no rule writes."""
    lines = ["def copy_state(old):", "    new = State.__new__(State)"]
    for name, f in _kept_fields(system, with_ghosts).items():
        match 0 if name in unwritten else _depth(f):
            case 0:
                value = f"old.{name}"
            case 1:
                value = f"old.{name}[:]"
            case 2:
                value = f"[a[:] for a in old.{name}]"
            case _:
                value = f"[[b[:] for b in a] for a in old.{name}]"
        lines.append(f"    new.{name} = {value}")
    names: dict[str, Any] = {"State": system.state}
    exec("\n".join([*lines, "    return new"]), names)
    copier: Callable[[Any], Any] = names["copy_state"]
    return copier


@functools.cache
def _maker(system: System, with_ghosts: bool) -> CodeType:
    """The code of the function that makes a first state. It finds the sizes among its globals."""
    lines = ["def first_state(State, row_of_blocks):", "    new = State.__new__(State)"]
    lines += [f"    new.{name} = {_first_value(f)}" for name, f in _kept_fields(system, with_ghosts).items()]
    module = compile("\n".join([*lines, "    return new"]), "<first state>", "exec")
    return next(one for one in module.co_consts if isinstance(one, CodeType))


def _first_value(f: Field) -> str:
    """The first value of a field, as an expression. Rows that a copy of a state shares are shared here too."""
    ids = [domain.name.lower() for domain in f.domains]
    if callable(f.start):
        value, depth = f"{f.start.__name__}({', '.join(f.start_arguments(ids))})", len(ids) + 1
    else:
        value, depth = repr(f.start), _depth(f)
    for place in reversed(range(len(ids))):
        size = f.domains[place].size
        if place + 1 < depth:
            value = f"[{value} for {ids[place]} in range({size})]"
        elif place == depth - 1 > 0 and ids[place] == "block":
            value = f"row_of_blocks({value}, {size})"
        else:
            value = f"[{value}] * {size}"
    return value


def row_of_blocks(start: Any, num_blocks: int) -> Any:
    """The row of a sequence that has a cell for each block, in the first state."""
    return SparseRow(start) if num_blocks >= SPARSE_MIN else [start] * num_blocks


class _Functions(dict[str, Callable[..., Any]]):
    """The functions of a machine by their names; those of the contracts are compiled when the first is asked for."""

    def __init__(self, system: System, names: dict[str, Any], with_ghosts: bool, with_checks: bool) -> None:
        super().__init__()
        self.system, self.names, self.with_ghosts, self.with_checks = system, names, with_ghosts, with_checks

    def __missing__(self, name: str) -> Callable[..., Any]:
        names = self.names
        if name not in names:
            missing = {one: found for one, found in contract_functions(self.system).items() if one not in names}
            left_out = frozenset[str]() if self.with_ghosts else self.system.ghosts
            define(missing, names, left_out, self.with_checks)
        function: Callable[..., Any] = names[name]
        self[name] = function
        return function


class MachineOf(Generic[AnyState]):
    """A specification for given sizes: its rules, predicates, functions and claims, and its first state.

    with_ghosts: keep the fields that only proofs and the invariants about enumerations need.
    with_checks: evaluate the obligations, and raise `CheckFailed` when one does not hold.
    text: other functions than those of the specification, such as a rule with a fault in it, or only some of them.
    """

    def __init__(
        self,
        sizes: SizesOf[AnyState],
        with_ghosts: bool = True,
        with_checks: bool = True,
        text: Functions | None = None,
    ) -> None:
        if text is None:
            names = namespace(sizes, with_ghosts, with_checks)
        else:
            names = names_of(sizes, text, with_ghosts, with_checks)
        self.sizes, self.system = sizes, sizes.system
        self.with_ghosts, self.with_checks = with_ghosts, with_checks
        self.names, left_out = names, sizes.left_out
        self.rules: dict[str, Rule] = {
            name: names[name]
            for name in (rule.__name__ for rule in self.system.collected.rules)
            if name in names and name not in left_out
        }
        self._make = FunctionType(_maker(self.system, with_ghosts), names)
        self.copy: Callable[[AnyState], AnyState] = _copier(self.system, with_ghosts, sizes.unwritten)
        # A function of the text, by its name. Searches ask for one in every state, so this is one look-up.
        self.function: Callable[[str], Callable[..., Any]] = _Functions(
            self.system, names, with_ghosts, with_checks
        ).__getitem__

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        """The value of a function, given those of the values that its parameters name."""
        found = self.function(name)
        return found(*(values[one] for one in inspect.signature(found).parameters))

    def first_state(self) -> AnyState:
        """The state in which nothing has happened."""
        made: AnyState = self._make(self.system.state, row_of_blocks)
        return made

    def broken_claims(self, state: AnyState) -> list[str]:
        """The names of the invariants and theorems that the state does not satisfy."""
        claims = self.system.collected.invariants + self.system.collected.theorems
        return [claim.name for claim in claims if not self.names[claim.name](state)]


class Machine(MachineOf[State]):
    """The specification of block managers for given sizes."""

    sizes: Sizes

    def __init__(
        self, sizes: Sizes, with_ghosts: bool = True, with_checks: bool = True, text: Functions | None = None
    ) -> None:
        super().__init__(sizes, with_ghosts, with_checks, text)
        self.null: int = self.names["NULL"]


class SparseRow(dict[int, Any]):
    """A long row of which only the values that differ from `start` are stored.

    A live server has hundreds of sequences and a million blocks, and a row of a sequence has a cell for each block.
    """

    def __init__(self, start: Any, values: Mapping[int, Any] = MappingProxyType({})) -> None:
        super().__init__(values)
        self.start = start

    def __getitem__(self, at: Any) -> Any:
        """The value of a cell, or a copy of the row for `[:]`."""
        return SparseRow(self.start, self) if at.__class__ is slice else self.get(at, self.start)

    def __setitem__(self, at: int, value: Any) -> None:
        if value == self.start:
            self.pop(at, None)
        else:
            super().__setitem__(at, value)
