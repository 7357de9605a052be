"""Which judges a run of `kvproof verify` has.

By default all of them, except that the specification is not proved and searched again for a subject that is not
kvproof's own: those two judges do not look at the subject, and the release carries the record of what they showed. If
the record does not fit the specification, for example in a checkout that changes it, they run after all.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kvproof.check.isolation.factory import PIPE, is_foreign
from kvproof.check.oracle.level import MANAGER
from kvproof.check.protocol.manager import Assumption
from kvproof.check.runs.errors import UsageError, did_you_mean
from kvproof.check.search.strategies import STRATEGIES, Strategy
from kvproof.models.proof_record import read_record

PROVER, SPECIFICATION, EXPLORER, DATA_PLANE, HYPOTHESIS = (
    "prover",
    "specification",
    "explorer",
    "data-plane",
    "hypothesis",
)
OF_THE_SPECIFICATION = frozenset({PROVER, SPECIFICATION})
RECORDED = "specification-proved"


@dataclass(frozen=True)
class Judges:
    """The judges of a run. assumptions: what the run takes from the record instead. messages: for the report."""

    names: frozenset[str]
    assumptions: tuple[Assumption, ...] = ()
    messages: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        return name in self.names


def judges_of(strategy: Strategy, has_data_plane: bool) -> list[str]:
    """The names of the judges that can judge a subject of this level, in the order in which they run."""
    is_manager = strategy.level is MANAGER
    return [
        PROVER,
        SPECIFICATION,
        *([EXPLORER] if strategy.can_explore else []),
        *([DATA_PLANE] if is_manager or has_data_plane else []),
        strategy.judge,
        *([HYPOTHESIS] if is_manager else []),
    ]


def _names(asked: Iterable[str]) -> list[str]:
    return [name.strip().replace(" ", "-") for text in asked for name in text.split(",")]


def require_judges(asked: Iterable[str]) -> None:
    """Raise UsageError for a name that is no judge of any subject. asked: as for `settled_judges`."""
    known = list(dict.fromkeys(name for one in STRATEGIES.values() for name in judges_of(one, has_data_plane=True)))
    for name in _names(asked):
        if name not in known:
            text = f"--judges: no judge is named {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}"
            raise UsageError(text, "judges")


def settled_judges(asked: Iterable[str], subject: str, strategy: Strategy, has_data_plane: bool) -> Judges:
    """The judges that the user names, each text one name or several with commas; or the default. Raises UsageError."""
    known = judges_of(strategy, has_data_plane)
    names = _names(asked)
    for name in names:
        if name not in known:
            raise UsageError(
                f"--judges: no judge of {subject} is named {name!r}{did_you_mean(name, known)}; there are "
                f"{', '.join(known)}",
                "judges",
            )
    if names:
        return Judges(frozenset(names))
    if not (is_foreign(subject) or subject.startswith(PIPE)):
        return Judges(frozenset(known))
    record, reason = read_record()
    if record is None:
        return Judges(frozenset(known), messages=(f"{reason}, so this run proves and searches the specification",))
    return Judges(frozenset(known) - OF_THE_SPECIFICATION, (Assumption(RECORDED, record.sentence),))
