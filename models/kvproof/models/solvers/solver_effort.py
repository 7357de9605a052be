"""How hard each obligation was, kept in a small file and compared: a proof that becomes brittle grows before it breaks.

The effort is Z3's own count, the same each time the same version is asked the same question with the same seed; so a
baseline of another version or seed is not compared. Small ones are noise: below the floor an obligation is no more than
counted with the others of its subject.
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

    solver: name and version. hard: effort of each obligation that took the floor or more, by its name. subjects: how
    many obligations each `suite/subject` has, kept ones too.
    """

    solver: str
    seed: int
    hard: dict[str, int]
    subjects: dict[str, int]

    def as_data(self) -> dict[str, object]:
        """What a file holds."""
        return asdict(self)


def efforts(decided: Iterable[ProofOutcome], solver: str, seed: int) -> Efforts:
    """What is to be kept of a run."""
    hard: dict[str, int] = {}
    subjects: Counter[str] = Counter()
    for one in decided:
        subjects[f"{one.obligation.suite}/{one.obligation.subject}"] += 1
        if one.answer.effort >= FLOOR:
            hard[one.obligation.id] = one.answer.effort
    return Efforts(solver, seed, dict(sorted(hard.items())), dict(sorted(subjects.items())))


def worse(before: Efforts, decided: Iterable[ProofOutcome]) -> Iterator[str]:
    """Each obligation that takes half as much again as it did, and half as much again as the floor.

    Of a subject that the baseline does not know every obligation is new, and none is harder.
    """
    for one in decided:
        if f"{one.obligation.suite}/{one.obligation.subject}" not in before.subjects:
            continue
        known = before.hard.get(one.obligation.id, FLOOR)
        if one.answer.effort > GROWTH_MAX * known:
            was = f"{known:,}" if one.obligation.id in before.hard else f"less than {FLOOR:,}"
            yield f"{one.obligation.id}: effort {one.answer.effort:,}, {was} in the baseline"


def changes(before: Efforts, now: Efforts) -> Iterator[str]:
    """What is new and what is gone, of two whole runs."""
    for name in sorted(before.subjects.keys() | now.subjects.keys()):
        was, count = before.subjects.get(name, 0), now.subjects.get(name, 0)
        if was != count:
            yield f"{name}: {count} obligations, {was} in the baseline"
    for name in sorted(now.hard.keys() - before.hard.keys()):
        yield f"{name}: effort {now.hard[name]:,}, less or not there in the baseline"
    for name in sorted(before.hard.keys() - now.hard.keys()):
        yield f"{name}: effort {before.hard[name]:,} in the baseline, less or not there any more"
