"""The specification in C for one scope: the library that holds it, and states as cells, strings and Python's own.

The library is made of the text (rules, claims), the programs of `operations`, the canonical form (all generated) and
the files of C beside this one, which make ghosts anew, count references and lists again, choose what is tried, and
search. One library serves all scopes; it is compiled
once and kept in the cache folder of the user.
"""

import ctypes
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, compress
from mmap import mmap
from operator import attrgetter
from pathlib import Path
from typing import Any

from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.enumerations import enumerate_ghosts
from kvproof.check.search.exhaustive.places import machine_for_searches
from kvproof.spec.c_reader import programs, translation
from kvproof.spec.c_reader.canonical_form import IDS_MAX, NUM_IDS_MAX, STREAM_MAX, canonical_form
from kvproof.spec.c_reader.library import Loaded, load
from kvproof.spec.c_reader.programs import ProgramTranslator
from kvproof.spec.c_reader.translation import GHOST_FIELDS, REAL_FIELDS, SIZES, is_row
from kvproof.spec.language import IDENTITIES
from kvproof.spec.names_only import mixed_names
from kvproof.spec.syntax_trees import Functions
from kvproof.spec.text.state import NONE, State

# Functions of the text that `calls.c` asks.
ASKED = (
    "num_tokens_known",
    "blocks_for",
    "first_read",
    "entries_missing",
    "tail_is_shared",
    "has_arrived",
    "can_still_be_read",
    "pool_of",
)
WRITTEN = ("enumerations.c", "independent_count.c", "calls.c", "search.c")
SUCCESSOR_BYTES_MAX = 1 << 24  # of the strings that one state leads to
ROOT = 0  # the identity before the first position
TOKENS_MAX = 255
values_of, ghosts_of = attrgetter(*REAL_FIELDS), attrgetter(*GHOST_FIELDS)
DEPTHS = [len(field.domains) - 1 for field in REAL_FIELDS.values()]  # of lists within the list of a field
DEPTHS_OF_GHOSTS = [len(field.domains) - 1 for field in GHOST_FIELDS.values()]
ARE_IDENTITIES = [field.to is IDENTITIES for field in REAL_FIELDS.values()]
in_use = threading.RLock()  # a library has one scope and one search at a time


class UnfitForC(ValueError):
    """The C reader cannot search a scope, or a text. The message is for the user."""


class TooLargeForC(UnfitForC):
    """A scope has more ids than a byte can name."""


def translation_of(text: Functions | None = None) -> tuple[ProgramTranslator, str]:
    """The translator after its work, and the whole source. text: other rules than those of the specification."""
    translator = ProgramTranslator(text)
    rules = translator.source(ASKED)
    form = canonical_form(translator)
    written = [(Path(__file__).parent / name).read_text() for name in WRITTEN]
    parts = [translation.PRELUDE, translator.declarations(), rules, form, programs.PRELUDE, translator.programs()]
    return translator, "\n".join([*parts, *written])


@cache
def translated() -> tuple[ProgramTranslator, str]:
    """The translation of the specification as it is."""
    return translation_of()


@cache
def loaded() -> Loaded:
    """The library of the specification as it is. Raises NoLibrary."""
    return load(translated()[1])


class SpecificationInC:
    """The specification of one scope. Raises NoLibrary, TooLargeForC if a name would not fit into a byte, and
    UnfitForC if the text takes a name for something else: in C, that may read and write outside a field.

    library, text: what the specification is made of, if it is another one than it is.
    """

    def __init__(self, scope: Scope, library: Loaded | None = None, text: Functions | None = None) -> None:
        if mixed := mixed_names(text):
            raise UnfitForC(f"the C reader cannot search this text: {mixed}; leave out --reader c")
        sizes = sizes_of(scope)
        names = sizes.names()
        self.scope, self.text = scope, text
        self.machine = machine_for_searches(sizes, with_ghosts=True, text=text)
        self.translator = translated()[0]
        self.rules = self.translator.rules
        self.claims = self.translator.claims
        self.loaded = library or loaded()
        self.library = self.loaded.library
        largest = max(names["NUM_BLOCKS"], sizes.num_seqs, sizes.num_flights)
        if largest > IDS_MAX or scope.num_tokens > TOKENS_MAX or sizes.block_size > IDS_MAX:
            raise TooLargeForC(
                f"the C reader searches scopes of at most {IDS_MAX} blocks and {TOKENS_MAX} tokens; "
                "leave out --reader c, or take a smaller scope"
            )
        self._sizes = (ctypes.c_int * len(SIZES))(*translation.numbered(names))
        options = (
            scope.num_tokens,
            scope.caching,
            scope.window,
            scope.lookahead,
            scope.fork,
            scope.swap,
            scope.num_flights,
            scope.reserving,
            scope.level == "rules",
        )
        self._options = (ctypes.c_int * len(options))(*map(int, options))
        with in_use:
            self.library.set_sizes(self._sizes)
            self.num_cells: int = self.library.cells()
        self._written = mmap(-1, SUCCESSOR_BYTES_MAX)  # memory takes no room before it is written
        self._room = (ctypes.c_char * SUCCESSOR_BYTES_MAX).from_buffer(self._written)
        first = self.machine.first_state()
        self._initial = self._flat(first, {})
        num_real = sum(len(list(_numbers(*each))) for each in zip(values_of(first), DEPTHS, strict=True))
        if num_real + NUM_IDS_MAX + IDS_MAX + 8 > STREAM_MAX:
            raise TooLargeForC(f"a state of this scope has {num_real} cells, the C reader takes {STREAM_MAX - 322}")

    def prepare(self) -> None:
        """Give the library this scope. The caller holds `in_use`."""
        if not self.library.prepare(self._sizes, self._initial, self._options):
            raise MemoryError

    # States --------------------------------------------------------------------------------------------------------

    def cells(self, state: State, before: Sequence[int]) -> Any:
        """The cells of a state of the Python reader. before: for each identity, the one of the position before it."""
        names = {NONE: NONE, ROOT: ROOT}
        parents = [ROOT]
        for identity in sorted(_identities(state)):
            unnamed = []
            while identity not in names:
                unnamed.append(identity)
                identity = before[identity] if identity < len(before) else ROOT
            for one in reversed(unnamed):
                parents.append(names[before[one]] if one < len(before) else ROOT)
                names[one] = len(names) - 1
        return self._flat(state, names, parents)

    def raw_cells(self, state: State) -> Any:
        """The cells of a state of the Python reader, identities under the numbers that they have there, and ghosts."""
        ghosts = zip(ghosts_of(state), DEPTHS_OF_GHOSTS, strict=True)
        return self._flat(state, None, ghosts=list(chain.from_iterable(_numbers(*each) for each in ghosts)))

    def _flat(
        self,
        state: State,
        names: dict[int, int] | None,
        parents: Sequence[int] = (ROOT,),
        ghosts: Sequence[int] = (),
    ) -> Any:
        """The cells of a state. ghosts: their cells; without them these are 0, and no string depends on them."""
        numbers = list[int]()
        for value, depth, is_identity in zip(values_of(state), DEPTHS, ARE_IDENTITIES, strict=True):
            if is_identity and names is not None:
                numbers += [names.get(number, ROOT) for number in _numbers(value, depth)]
            else:
                numbers += _numbers(value, depth) if depth else value
        numbers += ghosts or [0] * (self.num_cells - len(numbers))
        assert len(numbers) == self.num_cells
        found = array("h", [*numbers, len(parents) - 1, *parents])
        found.frombytes(bytes(2 * (self.num_cells + 2 + NUM_IDS_MAX + TOKENS_MAX - len(found))))
        return (ctypes.c_int16 * len(found)).from_buffer(found)

    def string(self, state: State, before: Sequence[int]) -> bytes:
        """The canonical string of a state of the Python reader; empty if a number of it is out of range."""
        num = self.library.string_of(self.cells(state, before), self._room)
        if num < 0:
            raise TooLargeForC("a state has more identities than the C reader can name")
        return self._written[:num]

    def state(self, string: bytes) -> tuple[State, list[int]]:
        """A string as a state of the Python reader, and for each identity the one of the position before it.

        Tokens in entries that a window has left are given back: the Python search reads which ones are in use. Ghosts
        are made anew, as both searches do.
        """
        cells = type(self._initial).from_buffer_copy(self._initial)
        self.library.state_of(string, len(string), cells)
        state, place = self.machine.first_state(), 0
        for name in REAL_FIELDS:
            value, place = _like(getattr(state, name), cells, place)
            setattr(state, name, value)
        place = self.num_cells
        before = list(cells[place + 1 : place + 2 + cells[place]])
        for seq, rows in enumerate(state.tokens):
            size, full, filled = self.scope.block_size, state.num_full[seq], state.num_filled[seq]
            identity = rows[full][filled - 1] if filled else rows[full - 1][-1] if full else ROOT
            for position in reversed(range(full * size + filled)):
                if position < (state.first[seq] - (state.first[seq] == full and not filled)) * size:
                    rows[position // size][position % size] = identity
                identity = before[identity]
        enumerate_ghosts(self.machine, state)
        return state, before

    def successors(self, string: bytes) -> tuple[list[bytes], int]:
        """The strings that a state leads to, and whether a finding was made there (0: none)."""
        finding, max_bytes = ctypes.c_int(), ctypes.c_long(SUCCESSOR_BYTES_MAX)
        count = self.library.successors(string, len(string), self._room, max_bytes, ctypes.byref(finding))
        if count < 0:
            raise TooLargeForC("a state has too many successors")
        return list(_strings(memoryview(self._written), count)), finding.value

    def fire(self, cells: Any, rule: str, arguments: Sequence[Any]) -> tuple[int, bool]:
        """Fire one rule in place: 0, the guard that refuses it or minus the obligation; whether a subscript was off."""
        row = (ctypes.c_int16 * self.scope.block_size)()
        numbers = (ctypes.c_int * 8)()
        for number, (parameter, value) in enumerate(zip(self.translator.parameters(rule), arguments, strict=True)):
            if is_row(parameter):
                row[:] = list(value)
            else:
                numbers[number] = value
        is_off = ctypes.c_int()
        result = self.library.fire_on(cells, self.rules.index(rule), numbers, row, ctypes.byref(is_off))
        return result, bool(is_off.value)


def _numbers(value: Iterable[Any], depth: int) -> Iterable[Any]:
    """The cells of a field, which are numbers and truth values, one after the other."""
    for _ in range(depth):
        value = chain.from_iterable(value)
    return value


def _like(value: Any, cells: Any, place: int) -> tuple[Any, int]:
    """The cells from a place on in the shape of a field, and the place after them."""
    if isinstance(value, list):
        if value and not isinstance(value[0], list):
            end, kind = place + len(value), type(value[0])
            return (cells[place:end] if kind is int else list(map(kind, cells[place:end]))), end
        found = []
        for each in value:
            one, place = _like(each, cells, place)
            found.append(one)
        return found, place
    return type(value)(cells[place]), place + 1


def _identities(state: State) -> set[int]:
    identities = compress(zip(values_of(state), DEPTHS, strict=True), ARE_IDENTITIES)
    return set(chain.from_iterable(_numbers(value, depth) for value, depth in identities))


def _strings(room: memoryview, count: int) -> Iterator[bytes]:
    at = 0
    for _ in range(count):
        num = int.from_bytes(room[at : at + 2].tobytes(), "little")
        yield room[at + 2 : at + 2 + num].tobytes()
        at += 2 + num
