"""Operations of a store that move nothing: keys are looked up and used, and a request is over."""

from collections.abc import Sequence

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.store.oracle import StoreOracle
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.store import ANSWERS, HIT, NO_SLOT, keys_text


class LookUpJudge:
    """Does the operations look_up, touch and finish."""

    def __init__(self, store: StoreOracle) -> None:
        self.store, self.explained, self.transfers = store, store.explained, store.transfers
        self.capabilities, self.coverage, self.call = store.capabilities, store.coverage, store.call

    @enabled_when()
    def op_look_up(self, request: int, keys: Sequence[int]) -> bool:
        """The store says of each key whether it has it."""
        if not self.store.fits(keys):
            return False
        context = f"look_up({keys_text(keys)})"
        answers = self.call("total-calls", "look_up", request, list(keys))
        check_answer("look_up", answers, list)
        if len(answers) != len(keys) or not set(answers) <= set(ANSWERS):
            raise AdapterError(f"look_up must answer one of {', '.join(ANSWERS)} for each key; it answered {answers}")
        self.store.reply.text = ", ".join(f"key {key} {answer}" for key, answer in zip(keys, answers, strict=True))
        for key, answer in zip(keys, answers, strict=True):
            if answer == HIT:
                self.explained.promise(key, context)
                self.coverage["hit"] += 1
            elif self.explained.has(key):
                self.store.judge_miss(key, answer, context)
            else:
                self.coverage["miss of a staged key"] += self.explained.slot_of(key) != NO_SLOT
        self.store.use(request, keys)
        self.store.settle(context)
        return True

    @enabled_when()
    def op_touch(self, request: int, keys: Sequence[int]) -> bool:
        """The request uses keys; at most the order of eviction changes."""
        if not self.store.fits(keys):
            return False
        self.call("total-calls", "touch", request, list(keys))
        self.store.use(request, keys)
        self.store.settle(f"touch({keys_text(keys)})")
        return True

    @enabled_when(about=lambda judge: judge.store.requests)
    def op_finish(self, request: int) -> bool:
        """The request is over; its transfers go on."""
        self.call("total-calls", "finish", request)
        del self.store.requests[request]
        self.coverage["finished with a transfer under way"] += any(
            one.request == request for one in self.transfers.values()
        )
        self.store.settle(f"finish({request})")
        return True
