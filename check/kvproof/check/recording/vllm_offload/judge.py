"""The meaning of the calls of vLLM's offloading manager, judged by the judge of stores."""

from kvproof.check.oracle.store.transfer import Transfer
from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.manager import Refused
from kvproof.check.protocol.store import Staged
from kvproof.check.recording.format import Header, RecordedCall
from kvproof.check.recording.replayed_subject import Unjudged
from kvproof.check.recording.store_lines import StoreLines


class OffloadJudge(StoreLines):
    """Judges a recording of an offloading manager."""

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._requests: dict[str, int] = {"": 0}
        self._by_key: dict[tuple[bool, int], list[Transfer]] = {}

    def _request(self, line: RecordedCall) -> int:
        return self._requests.setdefault(line.group, len(self._requests))

    # Calls ----------------------------------------------------------------------------------------------------------

    def on_lookup(self, line: RecordedCall) -> None:
        """Judge a look-up: a hit is there, and what is there is a hit."""
        self.replayed.answer = line.found
        self.look_ups.op_look_up(self._request(line), line.keys)

    def on_touch(self, line: RecordedCall) -> None:
        """Judge a use, which changes at most the order of eviction."""
        self.replayed.answer = None
        self.look_ups.op_touch(self._request(line), line.keys)

    def on_prepare_load(self, line: RecordedCall) -> None:
        """Judge a load that begins: every key is there, in the slot of the answer."""
        if line.raised and not all(map(self.explained.has, line.keys)):
            raise Unjudged("the program loads a key that no look-up finds, which the engine does not allow")
        self.replayed.answer = line.slots
        number = next(self.new_numbers)
        self.loading.op_begin_load(number, self._request(line), line.keys)
        self._split(number)

    def on_prepare_store(self, line: RecordedCall) -> None:
        """Judge a store that begins: which keys it takes, which slots they get, and what it evicted."""
        self.replayed.answer = Staged(line.taken, line.slots, line.evicted) if line.answer else Refused()
        number = next(self.new_numbers)
        self.storing.op_begin_store(number, self._request(line), line.keys)
        self._split(number)

    def _split(self, number: int) -> None:
        """Make one transfer for each key of this one, if it began."""
        whole = self.transfers.pop(number, None)
        if whole is None:
            return
        for key, slot, pin, flight in zip(whole.keys, whole.slots, whole.pins, whole.flights, strict=True):
            one = Transfer(
                next(self.new_numbers), whole.request, whole.is_load, whole.owner, [key], [slot], [pin], [flight]
            )
            self.transfers[one.number] = one
            self._by_key.setdefault((one.is_load, key), []).append(one)

    def on_complete_load(self, line: RecordedCall) -> None:
        """Judge the end of a load: it read the content of its keys."""
        self._end_of(line, True, False)

    def on_complete_store(self, line: RecordedCall) -> None:
        """Judge the end of a store: its keys can be found, or nothing is left of them."""
        check_answer("complete_store", line.answer, bool)
        self._end_of(line, False, not line.answer)

    def _end_of(self, line: RecordedCall, is_load: bool, has_failed: bool) -> None:
        for key in line.keys:
            begun = self._by_key.get((is_load, key), [])
            request = self._request(line)
            one = next((one for one in begun if one.request == request), begun[0] if begun else None)
            if one is None:
                raise Unjudged(f"the program ends a transfer of key {key}, which no earlier line began")
            begun.remove(one)
            if not begun:
                del self._by_key[is_load, key]
            self.end(one, has_failed)

    def on_on_request_finished(self, line: RecordedCall) -> None:
        """Judge the end of a request, which changes nothing; its transfers go on."""
        self.replayed.answer = None
        self.call("total-calls", "finish", self._requests.pop(line.group, 0) if line.group else 0)

    def on_reset_cache(self, line: RecordedCall) -> None:
        """Judge a reset: nothing is left."""
        self.replayed.answer = None
        self._by_key.clear()
        self.ends.op_clear()
