"""A sample of what a search in the process of a subject did is done again from outside, call by call.

A search in the process of the subject is fast, but a subject that changes the judge there can make it report what it
likes. So when such a search is over and has found nothing, some of its runs are drawn and done again: this process
draws the operations, asks the subject for each call, and judges the answers. What they refute is the finding.
The runs are drawn when the search is over, by what it reported, so the subject could not know them. They are judged by
themselves and not compared with the search: a manager may answer the same calls otherwise the next time, for example
because it takes another free block, and be right both times.

A subject that is right in every call from outside passes, whatever it did in the search.

Of a walk some runs are done, up to their first operations; of a scope, paths in which each operation is drawn from
those that are possible.
"""

from dataclasses import replace
from math import ceil
from random import Random
from typing import Any

from kvproof.check.hosts.time_limit import OutOfTime, time_limit_of
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding, FindingKey
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search import random_walk
from kvproof.check.search.random_walk import NUM_REPEATED_RUNS, WalkOptions
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import Strategy
from kvproof.spec.text.identity import Identities
from kvproof.spec.trace import Operation

NUM_RUNS, NUM_RUNS_LATER = 3, 1  # of a walk that begins, and of one that goes on: the next unit of a hunt
RUN_LENGTH_MAX, RUN_SHARE = 100, 1 / 100  # operations of such a run; at most this share of those of the walk
NUM_PATHS, PATH_LENGTH = 4, 12  # paths in a scope, and the operations of each


def found_in_walk(
    strategy: Strategy, subject: Any, seed: int, done: SearchResult, options: WalkOptions, **limits: Any
) -> Counterexample | None:
    """What a sample of the runs refutes. options: of the walk that is done. limits: seconds, and fixed fields."""
    if not done.num_runs:
        return None
    random = Random(f"{seed} {options.first_run} {done.num_drawn} {done.num_operations}")
    num_runs = min(NUM_RUNS_LATER if options.first_run else NUM_RUNS, done.num_drawn)
    length = RUN_LENGTH_MAX if not options.first_run else min(RUN_LENGTH_MAX, ceil(done.num_operations * RUN_SHARE))
    for number in sorted(random.sample(range(done.num_drawn), num_runs)):
        one = replace(options, first_run=options.first_run + number, runs_before=NUM_REPEATED_RUNS, pause_after=1)
        again = random_walk.walk(strategy, subject, seed, max_operations=length, options=one, **limits)
        if again.counterexample is not None:
            return again.counterexample
    return None


def found_in_scope(
    strategy: Strategy, subject: Any, scope: Scope, done: SearchResult, past: tuple[FindingKey, ...]
) -> Counterexample | None:
    """What some paths in the scope refute. past: findings that are excused."""
    exhaustive, path = strategy.exhaustive, list[Operation]()
    config, enabled = exhaustive.config_of(scope), exhaustive.enabled(scope, subject)
    random = Random(f"{done.num_states} {done.num_operations}")
    for _ in range(NUM_PATHS if done.num_operations else 0):
        path = []
        try:
            with time_limit_of(subject, strategy.level.replay_seconds_max):
                judge = strategy.level.open(subject, config, Identities())
                while len(path) < PATH_LENGTH and (possible := list(enabled(judge))):
                    path.append(random.choice(possible))
                    judge.apply(path[-1])
        except OutOfTime:
            return None
        except Finding as finding:
            if finding.key(path) not in past:
                return Counterexample(config, path, finding)
    return None
