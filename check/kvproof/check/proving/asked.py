"""What a run asks: the obligations of its suites, of a text that passes the lints, as they are pinned.

`kvproof prove` and the prover of `kvproof verify` both ask in this way. Proofs mean what they say only if the lints
find nothing in the text. So every lint is run with any obligation, whatever `--only` selects.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property

from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.proving.checks import LINT, lint_check, pin_check
from kvproof.check.proving.selection import Selection, matches, may_be_in
from kvproof.check.proving.vacuity import vacuity_names
from kvproof.check.runs.errors import UsageError
from kvproof.models.obligation import Obligation, Unit, made
from kvproof.models.pin import Pin, PinError, pinned_lines, pinned_names
from kvproof.models.proofs.lints import lint_names, lints
from kvproof.models.suites import OF_A_TEXT, SUITES, units_of
from kvproof.models.translation.text import Text
from kvproof.reports.result import Check


class Asked:
    """The obligations of some suites. text: replaces that of the specification. selection: of these names only."""

    def __init__(self, suites: Iterable[str], text: Text | None = None, selection: Selection | None = None) -> None:
        self.suites, self.text, self.selection = tuple(suites), text, selection or Selection()
        self._pin = Pin()
        linted = [name for name in lint_names() if self.selection.has(f"{LINT}/{name}")]
        self._linted = lint_names() if any(map(self.selection.may_have, self.suites)) else linted

    @cached_property
    def pinned(self) -> list[str]:
        """The lines of the committed pin that are about these suites. Raises PinError if it is missing or wrong."""
        return pinned_lines(self.suites)

    def require_names(self) -> None:
        """Raise UsageError if a pattern has matched nothing so far, and matches no obligation. Raises PinError, too.

        The pinned names decide this at once. Only for a pattern that matches none of them, which may be the name of a
        new obligation, the obligations of the suites that it may select are made.
        """
        known = [name for name in pinned_names() if name.partition("/")[0] in self.suites]
        for pattern in self.selection.unmatched:
            if not any(matches(name, pattern) for name in known):
                of_suites = (units_of(suite, self.text) for suite in self.suites if may_be_in(suite, pattern))
                if not any(matches(one.id, pattern) for units in of_suites for one in made(units)):
                    raise _no_such_name(pattern)

    def lint_checks(self) -> Iterator[Check]:
        """The checks of the lints: of all if an obligation may be selected, otherwise of those that are selected."""
        if self._linted:
            found = lints() if self.text is None else lints(self.text)
            yield from (lint_check(name, findings) for name, findings in found if name in self._linted)

    def obligations(self) -> Iterator[Obligation]:
        """The obligations, in the order in which they are made. Raises NotInLanguage, and UsageError at the end."""
        for suite in self.suites:
            for unit in self._units(suite):
                for one in unit.obligations():
                    if self.selection.has(one.id):
                        self._pin.add(one)
                        yield one
        for pattern in self.selection.unmatched:
            raise _no_such_name(pattern)

    def _units(self, suite: str) -> Iterator[Unit]:
        """The units of a suite; if it can tell, only those with obligations that may be selected."""
        if self.selection.may_have(suite):
            for unit in units_of(suite, self.text):
                if suite not in OF_A_TEXT or self.selection.may_have_any_of(suite, unit.name):
                    yield unit

    def pin_checks(self) -> Iterator[Check]:
        """The check that these obligations are the pinned ones, if there were any. Raises PinError."""
        if self._pin.lines:
            is_selected = self.selection.has if self.selection.patterns else None
            yield pin_check(list(self._pin.differences(self.pinned, is_selected)), self.text is not None)

    def why_meaningless(self) -> str:
        """Why no proof of these counts, as `kvproof prove` lists it; empty if the lints and the pin find nothing."""
        try:
            failed = [check for check in (*self.lint_checks(), *self.pin_checks()) if check.is_failure]
        except PinError as error:
            return str(error)
        return f"no proof counts: {failed[0].id}: {failed[0].text}" if failed else ""


def _no_such_name(pattern: str) -> UsageError:
    """The error of a pattern that matches nothing; it suggests names that are similar."""
    names = sorted(pinned_names())
    if any(matches(name, pattern) for name in names):
        return UsageError(f"{pattern} is a name of the pin, and nothing has this name any more")
    subjects = [name.rpartition("/")[0] for name in names]
    known = [*SUITES, LINT, *subjects, *names, *vacuity_names(), *(f"{LINT}/{name}" for name in lint_names())]
    return UsageError(
        f"nothing is named {pattern}{did_you_mean(pattern, list(dict.fromkeys(known)))}; "
        "names are suite/subject/claim, * stands for anything"
    )
