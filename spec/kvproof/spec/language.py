"""The words the specification is written in: domains of ids, kinds of fields, marks on rules and claims.

The specification is ordinary Python in a small subset, so that it has several readers. `native` compiles the
same text for given sizes and runs it; a prover reads its syntax tree with the sizes unknown. The subset:

    a rule         guards (`require`), then assignments to fields of the state, with obligations (`check`)
                   anywhere; `if`/`elif`/`else`; calls of steps; local names for values
    a step         like a rule, without guards; rules call it
    a word         one `return` of an expression: a name for a condition or a number
    a value        integers, truth values, fields with subscripts, comparisons, `and`/`or`/`not`,
                   `a if c else b`, `all`/`any` over domains, comprehensions over one domain
    a row          what a field gives for a block or table entry: one value for each of its slots; a row is
                   replaced as a whole (`spliced`), never changed in place, so copies of a state may share it

    a contract     what an operation does that fires rules again and again, for any number of firings (`Contract`)

No loops, no exceptions, no recursion, no aliasing. A guard stands before every write, so that a rule that
is not enabled changes nothing.
"""

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn, TypeVar


@dataclass(frozen=True)
class Domain:
    """A kind of number: from 0 up to `size` (a number, or the name of one), or without end if None."""

    name: str
    size: str | int | None

    def __iter__(self) -> Iterator[int]:
        _read_only()


NUM_GPU_BLOCKS: int = 1
NUM_BLOCKS: int = 1
NUM_SEQS: int = 1
NUM_FLIGHTS: int = 1
NUM_INDEXES: int = 1
BLOCK_SIZE: int = 1
NULL: int = 1  # NUM_BLOCKS: no block, in place of one that a sliding window left

BLOCKS = Domain("Block", "NUM_BLOCKS")
ENTRIES = Domain("Entry", "NUM_ENTRIES")  # a block, or NULL
SEQS = Domain("Seq", "NUM_SEQS")
FLIGHTS = Domain("Flight", "NUM_FLIGHTS")  # pending accesses of one block each; a name is used again after landing
INDEXES = Domain("Index", "NUM_INDEXES")  # logical block numbers; without end when proved
SLOTS = Domain("Slot", "BLOCK_SIZE")
POOLS = Domain("Pool", 2)
STATUSES = Domain("Status", 4)
RANKS = Domain("Rank", "NUM_RANKS")  # places in an enumeration; without end when proved
COUNTS = Domain("Count", None)
IDENTITIES = Domain("Identity", None)
FLAGS = Domain("Flag", 2)
STEPS = Domain("Step", "NUM_STEPS")  # firings of an operation, numbered; without end when proved

BlockId = Annotated[int, BLOCKS]
SeqId = Annotated[int, SEQS]
FlightId = Annotated[int, FLIGHTS]
PoolId = Annotated[int, POOLS]
Index = Annotated[int, INDEXES]
Count = Annotated[int, COUNTS]
Slot = Annotated[int, SLOTS]
Row = Annotated[list[int], SLOTS]
Ages = Annotated[list[int], BLOCKS]  # a number for each block
Tokens = Annotated[list[int], COUNTS]  # an identity for each position of a sequence
BlockNumbers = Annotated[list[int], BLOCKS]  # a number for each block
StepNumbers = Annotated[list[int], STEPS]  # a number for each firing
EntryNumbers = Annotated[list[int], INDEXES]  # a number for each entry of a table
FlightNumbers = Annotated[list[int], FLIGHTS]  # a number for each flight
Rows = Annotated[list[list[int]], INDEXES, SLOTS]  # the identities of each entry of a table
Flag = Annotated[int, FLAGS]  # 1: it is so
Places = Annotated[list[list[int]], SEQS, STEPS]  # a place in the table of each sequence, before each firing


@dataclass(frozen=True)
class Field:
    """One map of the state: from ids in `domains` to values in `to`, at first `start` (a value or a word)."""

    domains: tuple[Domain, ...]
    to: Domain
    start: Any
    kind: str  # real, derived (a function of real fields) or ghost (only proofs need it)


def real(*domains: Domain, to: Domain, start: Any = 0) -> Any:
    """A field that an implementation has in some form."""
    return Field(domains, to, start, "real")


def derived(*domains: Domain, to: Domain, start: Any = 0) -> Any:
    """A field that is a function of real ones, kept because rules use it."""
    return Field(domains, to, start, "derived")


def ghost(*domains: Domain, to: Domain, start: Any = 0) -> Any:
    """A field that only proofs need; nothing real depends on it, and native runs may leave it out."""
    return Field(domains, to, start, "ghost")


Value = TypeVar("Value")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Claim:
    """A named predicate of the state, and the property it belongs to."""

    property: str
    name: str
    sentence: str


@dataclass(frozen=True)
class Contract:
    """An operation that fires one rule, or one of several, again and again, by the names of its words.

    The words of a contract read two states: `start`, where the operation began, and `state`, where it is. Their
    parameters after the states stay the same throughout, but for one named `fired`, which is how often a rule has
    fired; those of the rule that are not among them are chosen anew for each firing, and come last in `choice`.
    `others` are further rules, each with its choice. For a prover these are the obligations, the middle ones for each
    rule, where every state satisfies every invariant and `after` is the state that a firing leaves:

        begins     starts(start)                               implies so_far(start, start) and left(start) >= 0
        goes on    so_far(start, state) and left(state) > 0    implies can_choose(state), if there is such a word
        is enabled so_far, left(state) > 0 and choice(state)   implies every guard of the rule
        keeps on   so_far, left(state) > 0 and choice(state)   implies so_far(start, after)
        ends       so_far, left(state) > 0 and choice(state)   implies 0 <= left(after) < left(state)
        has done   so_far(start, state) and left(state) == 0   implies done(start, state)

    By induction on the firings an operation that starts is never refused on its way, ends, and has done what it says.
    """

    property: str
    name: str
    sentence: str
    rule: str
    starts: str
    left: str
    so_far: str
    choice: str | None = None
    can_choose: str | None = None
    others: tuple[tuple[str, str], ...] = ()

    @builtins.property
    def firings(self) -> tuple[tuple[str, str | None], ...]:
        """Every rule that may fire, with the word that says what is chosen for it."""
        return ((self.rule, self.choice), *self.others)


@dataclass
class Collected:
    """What the marks below have gathered, in the order of the text."""

    words: list[Callable[..., Any]] = field(default_factory=list)
    steps: list[Callable[..., None]] = field(default_factory=list)
    rules: list[Callable[..., None]] = field(default_factory=list)
    invariants: list[Claim] = field(default_factory=list)
    theorems: list[Claim] = field(default_factory=list)
    contracts: list[Contract] = field(default_factory=list)
    predicates: dict[str, Callable[..., bool]] = field(default_factory=dict)


COLLECTED = Collected()


def word(function: Function) -> Function:
    """Mark a name for a condition or a number."""
    COLLECTED.words.append(function)
    return function


def step(function: Function) -> Function:
    """Mark writes that several rules share."""
    COLLECTED.steps.append(function)
    return function


def rule(function: Function) -> Function:
    """Mark a smallest step of the specification."""
    COLLECTED.rules.append(function)
    return function


def invariant(property: str) -> Callable[[Function], Function]:
    """Mark what every reachable state satisfies."""
    return lambda function: _claim(COLLECTED.invariants, property, function)


def theorem(property: str) -> Callable[[Function], Function]:
    """Mark what follows from the invariants."""
    return lambda function: _claim(COLLECTED.theorems, property, function)


def contract(
    property: str,
    rule: Callable[..., None],
    *,
    starts: Callable[..., bool],
    left: Callable[..., int],
    so_far: Callable[..., bool],
    choice: Callable[..., bool] | None = None,
    can_choose: Callable[..., bool] | None = None,
    others: dict[Callable[..., None], Callable[..., bool]] | None = None,
) -> Callable[[Function], Function]:
    """Mark what an operation has done when nothing is left to fire; see `Contract`."""

    def mark(done: Function) -> Function:
        sentence = (done.__doc__ or "").strip()
        names = (rule.__name__, starts.__name__, left.__name__, so_far.__name__)
        chosen, can = (each and each.__name__ for each in (choice, can_choose))
        further = tuple((other.__name__, word.__name__) for other, word in (others or {}).items())
        COLLECTED.contracts.append(Contract(property, done.__name__, sentence, *names, chosen, can, further))
        return done

    return mark


def _claim(claims: list[Claim], property: str, function: Function) -> Function:
    claims.append(Claim(property, function.__name__, (function.__doc__ or "").strip()))
    COLLECTED.predicates[function.__name__] = function
    return function


def _read_only() -> NoReturn:
    raise TypeError("the specification is compiled by kvproof.spec.native or translated; it does not run by itself")


def require(condition: bool, sentence: str, property: str = "") -> None:
    """A guard. `property` is what an implementation breaks that acts although the guard does not hold."""
    _read_only()


def check(condition: bool, property: str) -> None:
    """An obligation: it holds wherever a rule reaches it."""
    _read_only()


def implies(condition: bool, conclusion: bool) -> bool:
    """Whether `conclusion` holds or `condition` does not; the conclusion is read only if the condition holds."""
    _read_only()


def put(row: list[int], index: int, value: int) -> list[int]:
    """The row with one value replaced."""
    _read_only()


def copied(row: list[Value]) -> list[Value]:
    """A row, or rows, of its own with the same values."""
    _read_only()


def spliced(row: Row, start: int, stop: int, source: Row) -> Row:
    """The row with the slots from `start` up to `stop` taken from `source`."""
    _read_only()


def same(one: Row, other: Row, stop: int) -> bool:
    """Whether two rows agree in the slots before `stop`."""
    _read_only()
