"""What users get of each step: judged of a scheduler that reports it (`reports_tokens`).

A step generates tokens for a sequence: the drafts that were accepted, and the token that is sampled after them. Its
user gets them in this order, up to the end of the sequence: the token with which it has as many as it may get, or, if
the judge ends it, the first token that is equal to the one sampled last. Nobody else gets a token.

A model of so many positions can sample one token more, of which no KV is kept. So where the length of the model ends a
sequence, its last token may come in addition.
"""

from collections.abc import Iterable, Mapping, Sequence

from kvproof.check.oracle.scheduler.base import COMPLETE, SchedulerState
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.spec.text.budgets import num_to_generate


class DeliveryJudge:
    """Counts the tokens that each user has, and compares what a step adds to them."""

    def __init__(self, scheduler: SchedulerState) -> None:
        self.scheduler = scheduler
        self._num_got: dict[int, int] = {}  # by sequence

    def generated(self, sampled: Mapping[int, int], accepted: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
        """What a step generated, by sequence."""
        return {seq_id: [*accepted.get(seq_id, ()), token] for seq_id, token in sampled.items()}

    def forked(self, pairs: Iterable[tuple[int, int]]) -> None:
        """The user of a child has what the parent's has got so far."""
        for parent, child in pairs:
            self._num_got[child] = self._num_got.get(parent, 0)

    def judge(self, generated: Mapping[int, list[int]], ended: Iterable[int]) -> None:
        """Compare what users got with what the step generated. ended: the sequences that the judge has ended."""
        delivered = self.scheduler.call("total-calls", "delivered")
        check_answer("delivered", delivered, dict)
        over = set(ended)
        for seq_id in dict.fromkeys((*generated, *delivered)):
            tokens, observed = generated.get(seq_id, []), delivered.get(seq_id, [])
            if not isinstance(observed, list) or any(type(token) is not int for token in observed):
                raise AdapterError(f"delivered() must return lists of tokens; it is {observed!r:.80}", "delivered")
            least, most = self._bounds(seq_id, tokens, seq_id in over)
            if not (least <= len(observed) <= most and observed == tokens[: len(observed)]):
                raise Finding(
                    "tokens-delivered",
                    "the user of $sequence gets the tokens $observed of a step, and is to get $expected",
                    call=COMPLETE,
                    expected=tokens[:least],
                    observed=observed,
                    sequence=f"sequence {seq_id}",
                )
            self.scheduler.coverage["tokens behind the end"] += len(observed) < len(tokens)
            self._num_got[seq_id] = self._num_got.get(seq_id, 0) + len(observed)
        for seq_id in over:
            self._num_got.pop(seq_id, None)

    def _bounds(self, seq_id: int, tokens: list[int], is_over: bool) -> tuple[int, int]:
        """How many of these tokens the user gets at least, and at most."""
        seq, config = self.scheduler.seqs.get(seq_id), self.scheduler.config
        if seq is None or not tokens:
            return 0, 0
        request = self.scheduler.requests[seq.group.id]
        num_got = self._num_got.get(seq_id, 0)
        least, most = (
            num_to_generate(request.num_prompt, request.max_tokens, config.max_model_len + beyond) - num_got
            for beyond in (0, 1)
        )
        stop = tokens.index(tokens[-1]) + 1 if is_over else len(tokens)
        return min(stop, max(0, least)), min(stop, max(0, most))
