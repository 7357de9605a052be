"""A small instance of each contract, in which its operation runs natively from its beginning to its end.

A contract whose precondition, choices or hypotheses exclude each other would be proved, and would say nothing. So each
operation is run once: from a state that rules have reached, firing by firing, as the witnesses of the contract choose,
until nothing is left. Each rule of the contract fires at least once. Before and after each firing, everything that the
contract says is evaluated (`kvproof.spec.contract_run`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.models.translation.text import Text, specification
from kvproof.spec.contract_run import ContractBroken, ContractRun, Values
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import Contract
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import NONE, State

SIZES = Sizes(num_gpu_blocks=4, num_host_blocks=3, block_size=2, num_seqs=3, num_indexes=5, num_flights=2)
HOST_BLOCK = SIZES.num_gpu_blocks  # the first block of the host
A, B, C = [1, 2], [3, 4], [5, 6]  # contents of blocks
HALF = [1, NONE]
NUM_STEPS = SIZES.num_seqs * SIZES.num_indexes + 1


@dataclass(frozen=True)
class Instance:
    """An operation: the firings that lead from the first state to its start, and the values of its parameters."""

    before: tuple[tuple[Any, ...], ...]
    values: Mapping[str, Any]


def _computed(seq: int, block: int, row: list[int]) -> tuple[tuple[Any, ...], ...]:
    """The sequence appends a row of content to a free block and computes it."""
    return ("append", seq, block, row, 2), ("compute", seq, 2)


def _cached(seq: int, index: int, block: int) -> tuple[tuple[Any, ...], ...]:
    """An entry of the sequence can be hit."""
    return ("promote", seq, index), ("mark_computed", block)


def _freed(seq: int, num_blocks: int) -> tuple[tuple[Any, ...], ...]:
    return ("begin_free", seq), *[("drop_last", seq)] * num_blocks, ("finish", seq)


def _longer(values: list[int], length: int) -> list[int]:
    return values + values[-1:] * (length - len(values))


_BEGUN = (("admit", 0, 0), *_computed(0, 0, A), *_cached(0, 0, 0), *_computed(0, 1, B), *_cached(0, 1, 1))
_ON_HOST = (  # the content A, computed, in the first block of the host
    *(("admit", 2, 0), *_computed(2, 0, A), ("begin_swap", 2), ("move_entry", 2, HOST_BLOCK), ("end_swap", 2)),
    *_cached(2, 0, HOST_BLOCK),
)
_SHARED = (("admit", 0, 0), *_computed(0, 0, A), *_computed(0, 1, B), ("fork", 0, 1))

REMAINING_RULES: tuple[tuple[Any, ...], ...] = (  # firings of the rules that no instance needs
    *(("admit", 0, 1), ("skip", 0, C), ("widen", 0, 1), *_computed(0, 0, A), ("slide", 0)),
    *(("admit", 1, 0), ("append", 1, 1, B, 2), ("promote", 1, 0), ("admit", 2, 0), ("share", 2, 1, B)),
    *(("compute", 1, 2), ("catch_up", 2, 2), ("launch", 0, 1, 0), ("write_late", 0, B), ("land", 0)),
    *(("mark_computed", 1), ("copy_out", 0, 1)),
    *(("append", 0, 0, B, 2), ("exchange", 0, 2, 1, B), ("set_aside", 3)),
)

INSTANCES: dict[str, Instance] = {  # by the rule that the contract names first
    "evict": Instance(
        (*_BEGUN, *_computed(0, 2, C), *_cached(0, 2, 2), *_freed(0, 3)),
        {"pool": 0, "num_wanted": 3, "last_used": [5, 5, 1, 0, 0, 0, 0], "prefix": [1, 2, 3, 0, 0, 0, 0]},
    ),
    "drop_last": Instance((*_SHARED, *_computed(0, 2, C), ("begin_free", 0)), {"seq": 0}),
    "begin_free": Instance((*_SHARED, *_computed(0, 2, C)), {"seq": 0}),
    "append": Instance(
        (("admit", 0, 0), ("append", 0, 0, HALF, 1), ("fork", 0, 1)),
        {"seq": 0, "num_tokens": 3, "token_ids": [1, 2, 3, *[0] * 9], "index": 1, "slot": 0},
    ),
    "admit": Instance(
        (*_BEGUN, *_freed(0, 2)),
        {
            "seq": 1,
            "rows": [A, C, [7, NONE], *[[NONE, NONE]] * 4],
            "num_rows": 2,
            "num_tail": 1,
            "num_entries": 4,
            "num_hit": 1,
            "found": [0, *[NONE] * 6],
            "num_woken": [1, *[0] * 6],
            "num_spared": 0,
            "num_watermark": 0,
            "caching": 1,
        },
    ),
    "move_entry": Instance(
        (*_ON_HOST, *_SHARED, ("begin_swap", 0), ("begin_swap", 1)),
        {
            "pool": 0,
            "num_steps": 4,
            "seq_of": [0, 1, 0, 1, *[0] * (NUM_STEPS - 4)],
            "next_index": [_longer(one, NUM_STEPS) for one in ([0, 1, 1, 2, 2], [0, 0, 1, 1, 2], [0])],
            "first_step": [0, 2, 0, 0, 0, 0, 0],
            "twin_of": [HOST_BLOCK, *[NONE] * 6],
            "num_to_take": [1, 1, 1, *[0] * (NUM_STEPS - 3)],
        },
    ),
    "send_entry": Instance(
        (("admit", 0, 0), *_computed(0, 0, A), *_computed(0, 1, B), ("begin_swap", 0)),
        {
            "seq": 0,
            "num_steps": 5,
            "next_index": _longer([0, 1, 1, 2, 3], NUM_STEPS),
            "arriving": [NONE, 0, NONE, NONE, 1, *[NONE] * (NUM_STEPS - 5)],
            "arrival": [1, 4, *[0] * 4],
            "flight_of": [0, 1, *[NONE] * 4],
            "entry_of": [0, 1],
        },
    ),
}


class NotReached(Exception):
    """An operation cannot begin in its instance. The message says why."""


def reached(machine: Machine, instance: Instance) -> State:
    """The start of an instance. Raises NotReached."""
    state = machine.first_state()
    for _ in fired(machine, state, instance.before):
        pass
    return state


def fired(
    machine: Machine, state: State, firings: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[State, str, tuple[Any, ...]]]:
    """Fire rules in place. For each firing: the state before it, the rule and its arguments. Raises NotReached."""
    for rule, *arguments in firings:
        yield machine.copy(state), rule, tuple(arguments)
        refused = machine.rules[rule](state, *arguments)
        if refused is not None:
            raise NotReached(f"{rule}{tuple(arguments)} is refused: {refused.sentence}")


def begun(contract: Contract, machine: Machine) -> ContractRun:
    """The run of a contract's instance, before its first firing. Raises NotReached, or ContractBroken."""
    instance = INSTANCES[contract.rule]
    run = ContractRun(machine, contract, reached(machine, instance), instance.values)
    if not run.can_begin():
        raise NotReached(f"{contract.name}: the precondition does not hold in its instance")
    run.begin()
    return run


def firings(run: ContractRun) -> Iterator[tuple[str, Values]]:
    """Each firing of the run, before it fires: of the rules that may fire, one that has fired least. To the end."""
    while run.left() > 0:
        choices = list(run.choices())
        if not choices:
            raise ContractBroken(f"{run.contract.name}: nothing can be chosen after {dict(run.fired)}")
        rule, chosen = min(choices, key=lambda one: run.fired[one[0]])
        yield rule, chosen
        run.fire(rule, chosen)
    run.end()


def runs(names: list[str], text: Text | None = None) -> Iterator[tuple[str, str, bool]]:
    """For each of these contracts: what is wrong with the run of its instance, empty if nothing is; and whether it ran.

    An instance that is not reached has not run, so nothing is known about its contract.
    """
    machine = machine_of(text or specification())
    for contract in CONTRACTS:
        if contract.name in names:
            try:
                run = begun(contract, machine)
                for _ in firings(run):
                    pass
            except NotReached as error:
                yield contract.name, str(error), False
            except IndexError as error:
                yield contract.name, f"the instance is too small: {error}", False
            except ContractBroken as error:
                yield contract.name, str(error), True
            else:
                idle = [rule for rule, _ in contract.firings if not run.fired[rule]]
                yield contract.name, f"{', '.join(idle)} did not fire" if idle else "", not idle


def machine_of(text: Text) -> Machine:
    """The machine on which the instances of a text run."""
    return Machine(SIZES, with_ghosts=True, with_checks=False, text=text.functions)
