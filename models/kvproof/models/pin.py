"""The pin: a committed list of everything that is proved, and of what the proofs assume.

If a theorem, a check or a part of a contract disappears, everything that is left is still proved. So `pinned.txt` has a
line for each obligation, with its name, and whether it is trivial: true as it stands, without a solver. A claim that is
weakened to `True` becomes trivial. The file also has a line for each assumption, word for word: the sizes, the domains
of parameters, and the hypotheses of the suites that are not about the specification's rules.

`kvproof prove` and the test suite fail if a line vanishes or a new one appears. `make proofs-accept` writes the file
again; its diff shows what has changed.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kvproof.models.proofs.obligation import Hypothesis, Obligation
from kvproof.models.suites import OF_A_TEXT, OF_CODE, SUITES, obligations_of
from kvproof.spec.language import COLLECTED

FILE = Path(__file__).with_name("pinned.txt")
OBLIGATION, TRIVIAL, ASSUMPTION = "obligation", "trivial", "assumption"
INVARIANTS = {one.name for one in COLLECTED.invariants}
OF_THE_STATEMENT = ("sizes: ", "parameter ")  # the other hypotheses of rules and contracts are the specification's text


class Pin:
    """The pinned lines of some obligations."""

    def __init__(self) -> None:
        self.lines: set[str] = set()
        self._known: dict[tuple[str, str, int], Hypothesis] = {}  # keeps formulas alive, so that no id is used twice

    def add(self, obligation: Obligation) -> None:
        """Add an obligation and its assumptions."""
        self.lines.add(f"{TRIVIAL if obligation.is_trivial() else OBLIGATION}: {_one_line(obligation.id)}")
        for one in obligation.hypotheses:
            key = (obligation.suite, one.name, one.formula.get_id())
            if key not in self._known and _is_assumption(obligation.suite, one):
                text = "an invariant" if one.name in INVARIANTS else _one_line(one.formula.sexpr())
                self.lines.add(f"{ASSUMPTION}: {obligation.suite}: {one.name}: {text}")
            self._known.setdefault(key, one)

    def differences(self, pinned: Iterable[str], is_selected: Callable[[str], bool] | None = None) -> Iterator[str]:
        """A sentence for each line that is new, and for each pinned line that has vanished.

        is_selected: whether an obligation of this name is among those added, if not all of them are.
        """
        known = set(pinned)
        yield from (f"new {line}" for line in sorted(self.lines - known))
        for line in sorted(known - self.lines):
            kind, _, name = line.partition(": ")
            if is_selected is None or (kind != ASSUMPTION and is_selected(name)):
                yield f"vanished {line}"


def pinned_lines() -> list[str]:
    """The lines of the committed file."""
    return FILE.read_text(encoding="utf-8").splitlines()


def _is_assumption(suite: str, hypothesis: Hypothesis) -> bool:
    if suite in OF_A_TEXT:
        return hypothesis.name.startswith(OF_THE_STATEMENT)
    return suite != OF_CODE  # its hypothesis is the invariant of a class


def _one_line(text: str) -> str:
    return " ".join(text.split())


def accept() -> None:
    """Write the committed file from the obligations of today."""
    pin = Pin()
    for suite in SUITES:
        for one in obligations_of(suite):
            pin.add(one)
    FILE.write_text("".join(f"{line}\n" for line in sorted(pin.lines)), encoding="utf-8")


if __name__ == "__main__":
    accept()
