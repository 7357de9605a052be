"""Conformance in one line: the test that whoever has a block manager writes.

    def test_the_manager_conforms() -> None:
        run_conformance(Adapter)

It explores small scopes, then walks; what it finds is run again, made as short as possible, saved with a regression
test, and raised as an AssertionError whose text is the refutation.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from kvproof.check.configurations import check_fixed
from kvproof.check.crash import confirm, make_trace, refutation, save
from kvproof.check.explorer_subject import explore_subject
from kvproof.check.finding import Finding
from kvproof.check.protocol_check import check_adapter
from kvproof.check.scopes import Scope
from kvproof.check.shortening import shortest
from kvproof.check.subject import Config, ManagerSubject, Unsupported
from kvproof.check.subjects import name_of
from kvproof.check.walk import Conduct
from kvproof.check.walker import walk
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
) -> None:
    """Raise AssertionError, with the shortest run found, if the manager breaks a property of the specification.

    factory makes a subject: an adapter derived from `ManagerAdapter`, or anything with the calls of `ManagerSubject`.
    At most so many operations are walked, for at most so many seconds; the seed repeats a run. config fixes fields of
    `Config`, the others are drawn. expect names what the walk must have met, so that it cannot pass by doing nothing
    (`fork`, `copy-on-write`, `pool full`, ...). crashes is the folder for counterexamples and their regression tests.
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
    subject = factory()
    check_adapter(subject)
    found = _explore(factory, seconds * EXPLORE_SHARE) if config is None else None
    found = found or _walk(subject, operations, seconds, seed, config, set(expect))
    if found is not None:
        raise AssertionError(_saved(factory, subject.name, found, seed, Path(crashes)))


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
    conduct = Conduct(run_seconds=ANSWER_SECONDS_MAX)
    done = walk(subject, seed, max_operations=operations, seconds=seconds, fixed=config, conduct=conduct)
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


def _saved(factory: Callable[[], ManagerSubject], name: str, found: Found, seed: int, folder: Path) -> str:
    """Minimise and save; the refutation as text."""
    config, operations = found.config, found.operations
    finding = confirm(factory, config, operations, found.finding)
    if finding.property != "nondeterministic":
        config, operations, finding = shortest(factory, config, operations, finding, seed, SHORTEN_SECONDS_MAX)
    trace = make_trace(
        name_of(factory) or name,
        finding,
        config,
        operations,
        found.judge,
        seed,
        make=factory,
        num_operations_before=found.num_operations_before,
    )
    path = save(folder, trace)
    return refutation(trace, path)
