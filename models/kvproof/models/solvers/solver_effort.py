"""The effort of each proof, stored in a small file and compared later: brittle proofs get slow before they break.

The effort is Z3's own count of work. It is the same each time the same version of Z3 gets the same question with the
same seed, so only runs with equal versions and seeds are compared. Small efforts are noise: an obligation below the
floor is only counted, together with the others of its subject.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from kvproof.models.solvers.solving import ProofOutcome

FLOOR = 50_000
GROWTH_MAX = 1.5


@dataclass(frozen=True)
class Efforts:
    """The efforts of one run.

    solver: name and version. hard: effort of each obligation that took at least the floor, by name. subjects: the
    number of obligations of each `suite/subject`, including those that no solver was asked.
    """

    solver: str
    seed: int
    hard: dict[str, int]
    subjects: dict[str, int]

    def as_data(self) -> dict[str, object]:
        """The content of the file, for a JSON encoder."""
        return asdict(self)


def efforts(outcomes: Iterable[ProofOutcome], solver: str, seed: int) -> Efforts:
    hard: dict[str, int] = {}
    subjects: Counter[str] = Counter()
    for one in outcomes:
        subjects[f"{one.obligation.suite}/{one.obligation.subject}"] += 1
        if one.answer.effort >= FLOOR:
            hard[one.obligation.id] = one.answer.effort
    return Efforts(solver, seed, dict(sorted(hard.items())), dict(sorted(subjects.items())))


def worse(before: Efforts, outcomes: Iterable[ProofOutcome]) -> Iterator[str]:
    """A line for each obligation that takes more than 1.5 times the effort of the baseline, and of the floor.

    All obligations of a subject that the baseline does not have are new; none of them is reported.
    """
    for one in outcomes:
        if f"{one.obligation.suite}/{one.obligation.subject}" not in before.subjects:
            continue
        known = before.hard.get(one.obligation.id, FLOOR)
        if one.answer.effort > GROWTH_MAX * known:
            was = f"{known:,}" if one.obligation.id in before.hard else f"less than {FLOOR:,}"
            yield f"{one.obligation.id}: effort {one.answer.effort:,}, {was} in the baseline"


def changes(before: Efforts, now: Efforts) -> Iterator[str]:
    """A line for each difference between two runs of everything: numbers of obligations, and which ones are hard."""
    for name in sorted(before.subjects.keys() | now.subjects.keys()):
        was, count = before.subjects.get(name, 0), now.subjects.get(name, 0)
        if was != count:
            yield f"{name}: {count} obligations, {was} in the baseline"
    for name in sorted(now.hard.keys() - before.hard.keys()):
        yield f"{name}: effort {now.hard[name]:,}, smaller or absent in the baseline"
    for name in sorted(before.hard.keys() - now.hard.keys()):
        yield f"{name}: effort {before.hard[name]:,} in the baseline, now smaller or absent"
