"""The property that an adapter states itself, judged where the judges compare what a subject shows.

It comes after their own comparison, gets a copy of the state, and may change nothing that the subject shows: so it
changes no verdict about another property.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kvproof.check.oracle.comparison import what_counts
from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.own_property import OWN_PROPERTY, OwnState


class OwnProperty:
    """Judges the property of an adapter. sentence: what it says."""

    def __init__(
        self, explainer: Explainer, call: Callable[..., Any], seqs: Mapping[int, ExpectedSequence], sentence: str
    ) -> None:
        self._explainer, self._call, self._seqs, self._sentence = explainer, call, seqs, sentence

    def judge(self, context: str) -> None:
        """Ask the adapter whether its property holds now. Raises Finding, AdapterError."""
        observed = self._explainer.observed
        before = what_counts(observed)
        answer = self._call(OWN_PROPERTY, "check", self._state())
        check_answer("check", answer, bool)
        if what_counts(self._call("total-calls", "observe")) != before:
            raise AdapterError("check must change nothing that the manager shows", "check")
        if not answer:
            sentence = "a property of the adapter does not hold: $stated"
            raise Finding(OWN_PROPERTY, sentence, call=context, values={"stated": self._sentence})

    def _state(self) -> OwnState:
        observed = self._explainer.observed
        return OwnState(
            {seq: [list(table) for table in tables] for seq, tables in observed.tables.items()},
            (observed.free[0], observed.free[1]),
            list(self._explainer.state.refcount),
            None if observed.refs is None else list(observed.refs),
            None if observed.free_ids is None else list(observed.free_ids),
            {seq.id: len(seq.tokens) for seq in self._seqs.values()},
            {seq.id: seq.computed for seq in self._seqs.values()},
        )
