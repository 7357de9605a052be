"""The meaning of the calls of LMCache's L1 manager, judged by the judge of stores.

Leases. A lock of LMCache is a lease by the clock of the machine. A line has the times at which its call began and
ended, so the end of a lease is known to within the duration of the call that took it. What is surely over is over
before the line; between the two moments, the answer of the call decides.

Readers. LMCache counts read locks and does not say whose lock ends. The end of a load is taken for that of the oldest
load of the key that is in force, and only then for one whose lease is over, so that no correct run is refuted. Then the
end of a late reader that takes the lock of another reader is not found; `kvproof hunt` finds it.

Writers. Writers with different tags may write a key at the same time, each to an object of its own, and the first that
ends makes the key readable. The specification has one entry for each key. So the second writer's entry has a name of
its own, and gets the name of the key when its store ends first.
"""

from dataclasses import dataclass

from kvproof.check.oracle.store.transfer import Transfer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.store import HIT, NO_SLOT, Staged
from kvproof.check.recording.format import Header, RecordedCall
from kvproof.check.recording.store_lines import StoreLines

Writer = tuple[int, str]  # the key, and the tag of the writer


@dataclass
class Lease(Transfer):
    """A transfer of one key. Its lease ends after `earliest` and before `latest`, in microseconds.

    begun_as: the key, and the tag of a writer.
    """

    earliest: int = 0
    latest: int = 0
    begun_as: Writer = (0, "")

    @property
    def name(self) -> int:
        """The name that the judge has for the key."""
        return self.keys[0]

    @property
    def slot(self) -> int:
        """The slot."""
        return self.slots[0]


class L1Judge(StoreLines):
    """Judges a recording of an L1 manager."""

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._write_us, self._read_us = header.lease_us
        self._by_key: tuple[dict[int, list[Lease]], dict[int, list[Lease]]] = ({}, {})  # stores and loads in force
        self._num_lapsed: dict[int, int] = {}  # loads whose lease is over, by key
        self._writers: dict[Writer, Lease] = {}  # in force
        self._kept: dict[int, int] = {}  # the keys of stores whose lease is over, by the names of what they wrote
        self._in_order: tuple[dict[int, Lease], dict[int, Lease]] = ({}, {})  # stores and loads, as their leases end
        self._num_names = 0
        self._began = self._ended_at = 0

    def name_of(self, key: int, slot: int) -> int:
        if slot in self.explained.lapsed:
            return self.explained.lapsed[slot]
        return next((one.name for one in self._writes(key) if one.slot == slot), key)

    def _line_begins(self, line: RecordedCall) -> bool:
        """Ends the leases that are over for sure. False if the call raised an exception: then nothing may change."""
        self._began, self._ended_at = line.at
        for leases in self._in_order:
            while leases and (one := next(iter(leases.values()))).latest <= self._began:
                self._lapse(one)
        return not line.raised

    # Leases ---------------------------------------------------------------------------------------------------------

    def _begin(self, number: int, lease_us: int, key: int, tag: str = "") -> None:
        """The transfer that has begun is a lease."""
        begun = self.transfers.pop(number, None)
        if begun is None:
            return
        earliest, latest = self._began + lease_us, self._ended_at + lease_us
        one = Lease(**vars(begun), earliest=earliest, latest=latest, begun_as=(key, tag))
        self.transfers[number] = self._in_order[one.is_load][number] = one
        self._by_key[one.is_load].setdefault(key, []).append(one)
        if not one.is_load:
            self._writers[key, tag] = one

    def _may_be_over(self, one: Lease) -> bool:
        return one.earliest <= self._ended_at

    def _forget(self, one: Lease) -> None:
        key, by_key = one.begun_as[0], self._by_key[one.is_load]
        del self._in_order[one.is_load][one.number]
        by_key[key].remove(one)
        if not by_key[key]:
            del by_key[key]
        if not one.is_load:
            del self._writers[one.begun_as]

    def _lapse(self, one: Lease) -> None:
        """The lease is over: what it wrote is given up, and it holds nothing."""
        self._forget(one)
        one.failed = (0,)
        self.explained.land(one, self.store.context)
        self.explained.end(one, self.store.context)
        del self.transfers[one.number]
        key, lapsed = one.begun_as[0], self.explained.lapsed
        if one.is_load:
            self._num_lapsed[key] = self._num_lapsed.get(key, 0) + 1
        else:
            name = lapsed[one.slot] = self._new_name()
            self._kept = {name: key} | {name: key for name, key in self._kept.items() if name in lapsed.values()}
        self.coverage["lease over"] += 1

    def _end(self, one: Lease, has_failed: bool = False) -> None:
        self._forget(one)
        self.end(one, has_failed)

    def _writes(self, key: int) -> list[Lease]:
        """The stores of a key whose leases are in force."""
        return list(self._by_key[False].get(key, ()))

    def _reads(self, key: int) -> list[Lease]:
        """The loads of a key whose leases are in force, in their order."""
        return list(self._by_key[True].get(key, ()))

    def _is_held(self, key: int) -> bool:
        """Whether somebody reads or writes a key, or did until the lease was over."""
        kept = [self._kept[name] for name in self.explained.lapsed.values()]
        return any((self._reads(key), self._writes(key), key in self._num_lapsed, key in kept))

    # Writing --------------------------------------------------------------------------------------------------------

    def on_reserve_write(self, line: RecordedCall) -> None:
        """Judge stores that begin: each key that is taken has no object yet, and gets memory that nobody has."""
        if not self._line_begins(line):
            return
        slots = dict(zip(line.taken, line.slots, strict=True))
        for key in line.keys:
            before = self._writers.get((key, line.group))
            if key not in slots:
                if line.answer and not before and not self.explained.has(key) and not self._is_held(key):
                    sentence = f"the store says that key {key} is there, and it is neither there nor written"
                    raise Finding("lists-agree", sentence, call=self.store.context)
                continue
            if before is not None and self._may_be_over(before):
                self._lapse(before)
            self._stage(key, line.group, slots[key])

    def _stage(self, key: int, tag: str, slot: int) -> None:
        name = key
        if (key, tag) not in self._writers and any(one.name == key for one in self._writes(key)):
            name = self._new_name()
            self.coverage["two writers of a key"] += 1
        self._begin_store(key, tag, name, slot)

    def _new_name(self) -> int:
        """The name of an entry that has not the name of its key."""
        self._num_names += 1
        return -self._num_names

    def _begin_store(self, key: int, tag: str, name: int, slot: int) -> None:
        self.replayed.answer = Staged([name], [slot], [])
        number = next(self.new_numbers)
        self.storing.op_begin_store(number, 0, [name])
        self._begin(number, self._write_us, key, tag)

    def _taken_back(self, line: RecordedCall, accepted: list[int]) -> list[Lease]:
        """The stores that end with this line. A store that the line does not accept must be over."""
        ended = []
        for key in line.keys:
            one = self._writers.get((key, line.group))
            if key in accepted:
                if one is None:
                    sentence = f"the store accepts the end of a write of key {key}, and that writer holds nothing"
                    raise Finding("pin-own", sentence, call=self.store.context)
                ended.append(one)
            elif one is not None:
                if not self._may_be_over(one):
                    sentence = f"the store refuses the end of the write of key {key}, whose lease is in force"
                    raise Finding("pin-own", sentence, call=self.store.context)
                self._lapse(one)
        return ended

    def on_finish_write(self, line: RecordedCall) -> None:
        """Judge stores that have been written: the first of a key is kept, and the others are given up."""
        if self._line_begins(line):
            for one in self._taken_back(line, line.taken):
                self._admit(one)

    def on_finish_write_and_delete(self, line: RecordedCall) -> None:
        """Judge stores that have failed: nothing is left of them."""
        if self._line_begins(line):
            for one in self._taken_back(line, line.taken):
                self._end(one, has_failed=True)

    def on_finish_write_and_reserve_read(self, line: RecordedCall) -> None:
        """Judge stores that have been written, and loads of the same keys that begin at the same moment."""
        if self._line_begins(line):
            for one in self._taken_back(line, line.taken):
                self._admit(one)
            self._read(line, line.taken)

    def _admit(self, one: Lease) -> None:
        key, _ = one.begun_as
        if one.name != key and not self.explained.has(key):  # it gets the name of the key, which another may have
            for other in [other for other in self._writes(key) if other.name == key]:
                self._rename(other, self._new_name())
            one = self._rename(one, key)
        self._end(one, has_failed=one.name != key)

    def _rename(self, one: Lease, name: int) -> Lease:
        """The same store under another name."""
        self._end(one, has_failed=True)
        self._begin_store(*one.begun_as, name, one.slot)
        again = self._writers[one.begun_as]
        again.earliest, again.latest = one.earliest, one.latest
        return again

    # Reading --------------------------------------------------------------------------------------------------------

    def on_reserve_read(self, line: RecordedCall) -> None:
        """Judge loads that begin: exactly the keys that are there are given, from their slots."""
        if self._line_begins(line):
            self._read(line, line.keys)

    def _read(self, line: RecordedCall, keys: list[int]) -> None:
        slots = dict(zip(line.taken, line.slots, strict=True))
        for key in keys:
            for _ in range(line.num_seqs):
                self.replayed.answer = [slots.get(key, NO_SLOT)]
                number = next(self.new_numbers)
                self.loading.op_begin_load(number, 0, [key])
                self._begin(number, self._read_us, key)
                if key not in slots:
                    break

    def on_unsafe_read(self, line: RecordedCall) -> None:
        """Judge a read under a lock that was taken before: what is given is there, in its slot."""
        if self._line_begins(line):
            self.replayed.answer = [HIT] * len(line.taken)
            self.look_ups.op_look_up(0, line.taken)
            self.store.judge_given(line.taken, dict(zip(line.taken, line.slots, strict=True)), self.store.context)

    def on_finish_read(self, line: RecordedCall) -> None:
        """Judge loads that end: somebody holds the keys, and a temporary object goes with its last reader."""
        if not self._line_begins(line):
            return
        for key in line.keys:
            loads = self._reads(key)
            if key not in line.taken:
                if any(not self._may_be_over(one) for one in loads):
                    sentence = f"a load holds key {key}, and the store says that nobody reads it"
                    raise Finding("pin-own", sentence, call=self.store.context)
                self._end_lapsed(key)
            elif not loads and key not in self._num_lapsed:
                sentence = f"nobody holds key {key}, and the store ends a load of it"
                raise Finding("pin-own", sentence, call=self.store.context)
            else:
                for _ in range(line.num_seqs):
                    if loads:
                        self._end(loads.pop(0))
                    else:
                        self._end_lapsed(key)
        for key in line.evicted:
            self._evict(key)

    def _end_lapsed(self, key: int) -> None:
        number = self._num_lapsed.pop(key, 0)
        if number > 1:
            self._num_lapsed[key] = number - 1

    # Eviction -------------------------------------------------------------------------------------------------------

    def _evict(self, key: int) -> None:
        """The object of a key went: nobody reads it. Loads whose lease may be over hold it no longer."""
        for one in [one for one in self._reads(key) if self._may_be_over(one)]:
            self._lapse(one)
        self._num_lapsed.pop(key, None)
        self.explained.evict(key, self.store.context)

    def on_delete(self, line: RecordedCall) -> None:
        """Judge an eviction: the keys that went were held by nobody, and the others are held or not there."""
        if not self._line_begins(line):
            return
        for key in line.keys:
            if line.answer:
                self._fence(key)
            if key not in line.taken:
                self._require_held(key)
                continue
            for writer in self._writes(key):
                if not self._may_be_over(writer):
                    raise Finding(
                        "one-writer", f"key {key} is being written, and the store evicts it", call=self.store.context
                    )
                self._lapse(writer)
            if self.explained.has(key):
                self._evict(key)

    def _require_held(self, key: int) -> None:
        if self.explained.has(key) and not self._is_held(key):
            raise Finding(
                "refusal-needed", f"nobody holds key {key}, and the store does not evict it", call=self.store.context
            )

    def _fence(self, key: int) -> None:
        """Transfers of a key end, whose memory is taken away by force."""
        for one in [*self._reads(key), *self._writes(key)]:
            self._end(one, has_failed=True)

    def on_clear(self, line: RecordedCall) -> None:
        """Judge a reset: nothing is left, or, if it is not by force, what nobody holds."""
        if not self._line_begins(line):
            return
        if not line.answer:
            left = set(line.keys)
            for key in self.explained.resident():
                if key in left:
                    self._require_held(key)
                else:
                    self._evict(key)
            return
        for leases in self._in_order:
            for one in list(leases.values()):
                self._forget(one)
        self._num_lapsed.clear()
        self.replayed.answer = None
        self.ends.op_clear()
