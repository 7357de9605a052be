"""Which judges a run of `kvproof verify` has.

By default all of them, except that the specification is not proved and searched again for a subject that is not
kvproof's own: those two judges do not look at the subject, and the release carries the record of what they showed. If
the record does not fit the specification, for example in a checkout that changes it, they run after all. A judge that
is required runs too, and the run fails if it checks nothing, for example for lack of an extra of the package.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kvproof.check.isolation.factory import is_foreign
from kvproof.check.oracle.level import MANAGER
from kvproof.check.protocol.manager import Assumption
from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.runs.errors import UsageError
from kvproof.check.search.strategies import STRATEGIES, Strategy
from kvproof.check.subjects.own import PIPE
from kvproof.models.proof_record import read_record
from kvproof.reports.result import OF_THE_SPECIFICATION

PROVER, SPECIFICATION, EXPLORER, DATA_PLANE, HYPOTHESIS = (
    "prover",
    "specification",
    "explorer",
    "data-plane",
    "hypothesis",
)
RECORDED = "specification-proved"
JUDGES, REQUIRE = "judges", "require"  # the options, and the keys of kvproof.toml


@dataclass(frozen=True)
class Judges:
    """The judges of a run.

    assumptions: what the run takes from the record instead. messages: for the report. required: those that must check
    something, as results name them.
    """

    names: frozenset[str]
    assumptions: tuple[Assumption, ...] = ()
    messages: tuple[str, ...] = ()
    required: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        return name in self.names


def judges_of(strategy: Strategy, has_data_plane: bool) -> list[str]:
    """The names of the judges that can judge a subject of this level, in the order in which they run."""
    return [
        PROVER,
        SPECIFICATION,
        *([EXPLORER] if strategy.can_explore else []),
        strategy.judge,
        *([DATA_PLANE] if strategy.level is MANAGER or has_data_plane else []),
        HYPOTHESIS,
    ]


def _names(asked: Iterable[str]) -> list[str]:
    return [name.strip().replace(" ", "-") for text in asked for name in text.split(",")]


def require_judges(asked: Iterable[str], option: str = JUDGES) -> None:
    """Raise UsageError for a name that is no judge of any subject. asked: as for `settled_judges`."""
    known = list(dict.fromkeys(name for one in STRATEGIES.values() for name in judges_of(one, has_data_plane=True)))
    _require_known(_names(asked), known, "no judge", option)


def _require_known(names: Iterable[str], known: list[str], what: str, option: str) -> None:
    for name in names:
        if name not in known:
            text = f"--{option}: {what} is named {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}"
            raise UsageError(text, option)


def settled_judges(
    asked: Iterable[str], subject: str, strategy: Strategy, has_data_plane: bool, required: Iterable[str] = ()
) -> Judges:
    """The judges that the user names, each text one name or several with commas; or the default. Raises UsageError.

    required: the judges that must check something, in texts of the same form; they run whatever else is asked for.
    """
    known = judges_of(strategy, has_data_plane)
    names, needed = _names(asked), _names(required)
    for given, option in ((names, JUDGES), (needed, REQUIRE)):
        _require_known(given, known, f"no judge of {subject}", option)
    chosen = Judges(frozenset(names)) if names else _by_default(subject, known)
    in_results = tuple(dict.fromkeys(name.replace("-", " ") for name in needed))
    assumptions = () if PROVER in needed else chosen.assumptions
    return Judges(chosen.names.union(needed), assumptions, chosen.messages, in_results)


def _by_default(subject: str, known: list[str]) -> Judges:
    """The judges of a subject, of those at its level."""
    if not (is_foreign(subject) or subject.startswith(PIPE)):
        return Judges(frozenset(known))
    record, reason = read_record()
    if record is None:
        return Judges(frozenset(known), messages=(f"{reason}, so this run proves and searches the specification",))
    return Judges(frozenset(known) - OF_THE_SPECIFICATION, (Assumption(RECORDED, record.sentence),))
