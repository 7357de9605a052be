"""How fast the specification runs natively, and how fast its states are enumerated.

One program of enabled rules is prepared by a random walk and then replayed, so that nothing but the rules is timed.
All ways of running it must end in the same real state. Times are of this process, not of the clock on the wall, and
the best of several: what else a machine does can only slow a run down.
"""

import random
import time
from typing import Any

from kvproof.check.protocol.scopes import SCOPES, Scope
from kvproof.check.search.exhaustive.specification import explore_specification, space_of
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import State

SCOPE = Scope(8, 6, 4, 6, 2, caching=True, lookahead=2, swap=True, level="rules")
SIZES = Sizes(SCOPE.num_gpu_blocks, SCOPE.num_host_blocks, SCOPE.block_size, SCOPE.num_seqs, SCOPE.num_indexes)
NUM_STEPS = 20_000
ROUNDS = 5

Program = list[tuple[str, tuple[Any, ...]]]


def prepared(num_steps: int, seed: int = 1) -> Program:
    """Enabled firings of a random walk, rules drawn evenly and then their arguments."""
    source, space = random.Random(seed), RuleSpace(SCOPE)
    program: Program = []
    state = space.machine.first_state()
    while len(program) < num_steps:
        by_rule: dict[str, list[tuple[Any, ...]]] = {}
        for rule, *arguments in space.candidates(state):
            by_rule.setdefault(rule, []).append(tuple(arguments))
        # Several draws from one list: arguments that have gone stale are refused, and left out.
        for rule in source.choices(sorted(by_rule), k=12):
            drawn = source.choice(by_rule[rule])
            if space.machine.rules[rule](state, *drawn) is None:
                program.append((rule, drawn))
    return program[:num_steps]


def steps_per_second(machine: Machine, program: Program, with_copies: bool) -> tuple[float, dict[str, Any]]:
    """Replay the program; the best rate of several rounds, and the real fields at the end."""
    steps = [(machine.rules[rule], arguments) for rule, arguments in program]
    best, state = 0.0, machine.first_state()
    for _ in range(ROUNDS):
        state = machine.first_state()
        began = time.process_time()
        if with_copies:
            for rule, arguments in steps:
                state = machine.copy(state)
                rule(state, *arguments)
        else:
            for rule, arguments in steps:
                rule(state, *arguments)
        best = max(best, len(steps) / (time.process_time() - began))
    return best, real_fields(state)


def real_fields(state: State) -> dict[str, Any]:
    """What an implementation has too."""
    return {name: getattr(state, name) for name, f in FIELDS.items() if f.kind != "ghost"}


def main() -> None:
    """Print the rates."""
    program = prepared(NUM_STEPS)
    print(
        f"specification: {NUM_STEPS:,} enabled rules, {len({rule for rule, _ in program})} of them different, replayed"
    )
    ends = []
    for with_ghosts, with_checks, with_copies in (
        (False, False, False),
        (False, True, False),
        (True, True, False),
        (False, False, True),
        (False, True, True),
    ):
        rate, end = steps_per_second(Machine(SIZES, with_ghosts, with_checks), program, with_copies)
        ends.append(end)
        how = "a copy of the state each" if with_copies else "in place"
        extras = f"ghosts {'kept' if with_ghosts else 'left out'}, checks {'on' if with_checks else 'off'}"
        print(f"  {rate:>12,.0f} steps/s  {how}, {extras}")
    assert all(end == ends[0] for end in ends), "the ways of running the program end in different states"
    for name in ("tables-6x4x8", "rules-tables"):
        scope = SCOPES[name]
        space = space_of(scope)
        began = time.process_time()
        found = explore_specification(scope, seconds=600, space=space)
        seconds = time.process_time() - began
        print(
            f"  {found.num_states / seconds:>12,.0f} states/s  {name}: {found.num_states:,} canonical states, "
            f"{found.num_operations:,} transitions in {seconds:.2f} s"
        )


if __name__ == "__main__":
    main()
