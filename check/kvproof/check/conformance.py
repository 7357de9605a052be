"""Conformance in one line: the test that whoever has a block manager writes.

    def test_the_manager_conforms() -> None:
        run_conformance(Adapter)

It explores small scopes, then walks; what it finds is run again, made as short as possible, saved with a regression
test, and raised as an AssertionError whose text is the refutation. The manager lives in a process of its own, so that a
crash, a hang or memory without end is such a finding too, and not the end of the test run.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, cast

from kvproof.check.counterexample.store import make_trace, refutation, save
from kvproof.check.isolation.factory import isolated
from kvproof.check.isolation.limits import Limits
from kvproof.check.isolation.remote_search import explore_subject, shortest, walk
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.oracle.replay import confirm
from kvproof.check.protocol.adapter_check import MANAGER_CALLS, check_adapter
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.configurations import check_fixed
from kvproof.check.search.random_walk import WalkOptions
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.own import name_of
from kvproof.spec.trace import Operation

EXPLORE_SHARE = 0.2  # of the time
SHORTEN_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 5.0  # for what one transition, or one run of a walk, has to do: far more than either needs
SCOPES = (
    Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3, block_size=2),
    Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3, block_size=2, caching=True),
    Scope(num_gpu_blocks=3, num_host_blocks=2, num_seqs=2, num_tokens=3, block_size=2, swap=True),
)


@dataclass
class Found:
    """A finding with the run that shows it."""

    judge: str
    finding: Finding
    config: Config
    operations: list[Operation]
    num_operations_before: int


def run_conformance(
    factory: Callable[[], ManagerSubject],
    *,
    operations: int = 20_000,
    seconds: float = 30,
    seed: int = 0,
    level: str = "manager",
    config: dict[str, Any] | None = None,
    expect: Iterable[str] = ("admitted",),
    crashes: str | Path = "crashes",
    isolation: bool | None = None,
) -> None:
    """Raise AssertionError, with the shortest run found, if the manager breaks a property of the specification.

    factory makes a subject: an adapter derived from `ManagerAdapter`, or anything with the calls of `ManagerSubject`.
    At most so many operations are walked, for at most so many seconds; the seed repeats a run. config fixes fields of
    `Config`, the others are drawn. expect names what the walk must have met, so that it cannot pass by doing nothing
    (`fork`, `copy-on-write`, `pool full`, ...). crashes is the folder for counterexamples and their regression tests.
    isolation: whether the subject is made and judged in a process of its own, by the name of its factory; left out, all
    that has one but kvproof's own. What a test patched or captured is not there: say False to keep it in this process.
    Raises AdapterError if the adapter breaks the protocol, ValueError for an argument that makes no sense.
    """
    __tracebackhide__ = True
    if level != "manager":
        raise ValueError(f"level {level!r} is not there yet; there is 'manager'")
    if operations < 1 or seconds <= 0:
        raise ValueError(f"{operations} operations in {seconds} s check nothing")
    check_fixed(config or {})
    if not callable(factory):
        raise ValueError(f"give what makes a subject: {type(factory).__name__}, and not one that is made")
    try:
        make = isolated(factory, isolation, Limits.within(seconds))
    except UnknownSubject as error:
        raise AdapterError(f"{error} (in a process of its own; isolation=False keeps it in this one)") from None
    try:
        subject = make()
        check_adapter(subject, MANAGER_CALLS)
        found = _explore(make, seconds * EXPLORE_SHARE) if config is None else None
        found = found or _walk(subject, operations, seconds, seed, config, set(expect))
        if found is not None:
            raise AssertionError(_saved(make, name_of(factory) or subject.name, found, seed, Path(crashes)))
    finally:
        if make is not factory:
            cast(RemoteFactory, make).close()


def _explore(factory: Callable[[], ManagerSubject], seconds: float) -> Found | None:
    deadline = monotonic() + seconds
    for place, scope in enumerate(SCOPES):
        try:
            done = explore_subject(
                factory(),
                scope,
                seconds=(deadline - monotonic()) / (len(SCOPES) - place),
                transition_seconds=ANSWER_SECONDS_MAX,
            )
        except Unsupported:
            continue
        if done.finding is not None:
            return Found("explorer", done.finding, done.config, done.operations, done.transitions)
    return None


def _walk(
    subject: ManagerSubject,
    operations: int,
    seconds: float,
    seed: int,
    config: dict[str, Any] | None,
    expect: set[str],
) -> Found | None:
    options = WalkOptions(run_seconds=ANSWER_SECONDS_MAX)
    done = walk(subject, seed, max_operations=operations, seconds=seconds, fixed=config, options=options)
    if done.finding is not None:
        return Found("walker", done.finding, done.config, done.operations, done.num_operations)
    unmet = sorted(name for name in expect if not done.witnesses[name])
    if done.is_unsupported or not done.num_operations:
        raise AssertionError(f"nothing was checked: {subject.name} accepted no configuration that was drawn")
    if unmet:
        raise AssertionError(
            f"nothing was refuted, but {done.num_operations:,} operations never met {', '.join(unmet)}: "
            f"what that would show was not checked. Met: {', '.join(sorted(done.witnesses))}."
        )
    return None


def _saved(make: Callable[[], ManagerSubject], name: str, found: Found, seed: int, folder: Path) -> str:
    """Minimise and save; the refutation as text."""
    config, operations = found.config, found.operations
    finding = confirm(make, config, operations, found.finding)
    if finding.property != "nondeterministic":
        limits = {"seconds": SHORTEN_SECONDS_MAX, "seed": seed}
        config, operations, finding = shortest(make, finding, config=config, operations=operations, **limits)
    trace = make_trace(
        name,
        finding,
        config,
        operations,
        found.judge,
        seed,
        make=make,
        num_operations_before=found.num_operations_before,
    )
    path = save(folder, trace, make, finding)
    return refutation(trace, path)
