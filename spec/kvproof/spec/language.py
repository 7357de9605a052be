"""The language of the specification: domains of ids, kinds of fields, decorators for rules and claims.

The specification is ordinary Python in a small subset, so that it has several readers. `native` compiles the text for
given sizes and runs it; the prover reads its syntax tree with unknown sizes. The subset:

    a rule         guards (`require`), then assignments to fields of the state, with obligations (`check`) anywhere;
                   `if`/`elif`/`else`; calls of steps; local names for values
    a step         like a rule, without guards; rules call it
    a predicate    one `return` of a truth value: a name for a condition
    a function     one `return` of an integer: a name for a number
    a value        integers, truth values, fields with subscripts, comparisons, `and`/`or`/`not`, `a if c else b`,
                   `all`/`any` over domains, comprehensions over one domain
    a row          the value of a field for one block or table entry: one number for each of its slots. A row is
                   replaced as a whole (`spliced`) and never changed in place, so copies of a state may share it
    a record       a frozen dataclass of values, so that a predicate of a contract takes one parameter for all of them
    a contract     what an operation does that fires rules again and again, for any number of firings (`Contract`)

There are no loops, no exceptions, no recursion and no aliasing. Guards stand before every write, so a rule that is not
enabled changes nothing. A predicate or function has at most six parameters, and reads all of them.
"""

import builtins
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from inspect import signature
from typing import Annotated, Any, NoReturn, TypeVar


@dataclass(frozen=True)
class Domain:
    """The numbers from 0 up to `size`: a number, the name of a size, or None for a domain without end.

    is_signed: negative numbers are in the domain too.
    """

    name: str
    size: str | int | None
    is_signed: bool = False

    def __iter__(self) -> Iterator[int]:
        _read_only()


NUM_GPU_BLOCKS: int = 1
NUM_BLOCKS: int = 1
NUM_SEQS: int = 1
NUM_FLIGHTS: int = 1
NUM_INDEXES: int = 1
BLOCK_SIZE: int = 1
NULL: int = 1  # NUM_BLOCKS: the table entry of a block that a sliding window left

BLOCKS = Domain("Block", "NUM_BLOCKS")
ENTRIES = Domain("Entry", "NUM_ENTRIES")  # a block, or NULL
SEQS = Domain("Seq", "NUM_SEQS")
FLIGHTS = Domain("Flight", "NUM_FLIGHTS")  # pending accesses of one block each; an id is reused after landing
INDEXES = Domain("Index", "NUM_INDEXES")  # logical block numbers; without end when proved
SLOTS = Domain("Slot", "BLOCK_SIZE")
POOLS = Domain("Pool", 2)
STATUSES = Domain("Status", 4)
RANKS = Domain("Rank", "NUM_RANKS")  # places in an enumeration; without end when proved
COUNTS = Domain("Count", None)
WINDOWS = Domain("Window", None, is_signed=True)
IDENTITIES = Domain("Identity", None)
FLAGS = Domain("Flag", 2)
STEPS = Domain("Step", "NUM_STEPS")  # firings of an operation, numbered; without end when proved

BlockId = Annotated[int, BLOCKS]
SeqId = Annotated[int, SEQS]
FlightId = Annotated[int, FLIGHTS]
PoolId = Annotated[int, POOLS]
Index = Annotated[int, INDEXES]
Count = Annotated[int, COUNTS]
Window = Annotated[int, WINDOWS]
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
    """One map of the state: from ids in `domains` to values in `to`. start: its first value, or a function of ids."""

    domains: tuple[Domain, ...]
    to: Domain
    start: Any
    kind: str  # real, derived (a function of real fields) or ghost (only proofs need it)

    def start_arguments(self, ids: Sequence[Any]) -> list[Any]:
        """Those of the ids, one for each domain, that the function `start` has a parameter for: `block`, `pool`, …"""
        named = {domain.name.lower(): one for domain, one in zip(self.domains, ids, strict=True)}
        return [named[name] for name in _parameters(self.start)]


@functools.cache
def _parameters(start: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(signature(start).parameters)


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
class Least:
    """A witness that no function computes: a block of a set such that no other block of the set goes before it.

    A finite set that is not empty has such a member, if nothing goes before itself and `before` is transitive. among:
    a predicate, whether the block is in the set. before: a predicate, whether the block goes before `other`. some: a
    function, a block of the set, so that the set is not empty. All three take what they read by name.
    """

    among: str
    before: str
    some: str


def least(among: Callable[..., bool], before: Callable[..., bool], some: Callable[..., int]) -> Least:
    """A witness that exists by the lemma of the least element; see `Least`."""
    return Least(among.__name__, before.__name__, some.__name__)


@dataclass(frozen=True)
class Claim:
    """A named predicate of the state, and the property it belongs to."""

    property: str
    name: str
    sentence: str


@dataclass(frozen=True)
class Contract:
    """An operation that fires one rule, or one of several, again and again, by the names of its functions.

    The functions of a contract take what they read, by name: `start`, the state in which the operation began; `state`,
    the state in which it is; and the parameters of the contract, one of which may be a record. The parameters stay the
    same throughout, except for the one called `num_fired`, which counts the firings so far. A parameter of the rule
    that is no parameter of the contract is chosen again for each firing, and only `choice` may read it. `others` are
    further rules, each with its choice. For each rule and each parameter that is chosen for it, `witnesses` has a
    function that chooses it. For a prover these are the obligations, the middle ones for each rule, where every state
    satisfies every invariant, `I` is the loop invariant, and `after` is the state that a firing leaves:

        begins      precondition(start)                  implies I(start, start) and variant(start) >= 0
        goes on     I(start, state) and variant > 0      implies can_choose(state), if there is such a predicate
        has choice  I, variant > 0 and can_choose(state) implies the choice of one of the rules, for its witnesses
        is enabled  I, variant > 0 and choice(state)     implies every guard of the rule
        keeps on    I, variant > 0 and choice(state)     implies I(start, after)
        ends        I, variant > 0 and choice(state)     implies 0 <= variant(after) < variant(state)
        has done    I(start, state) and variant == 0     implies the postcondition

    By induction on the firings, an operation whose precondition holds is never refused on its way, ends, and leaves a
    state that satisfies the postcondition, which is the predicate that the contract is written on.
    """

    property: str
    name: str
    sentence: str
    rule: str
    precondition: str
    variant: str
    loop_invariant: str
    choice: str | None = None
    can_choose: str | None = None
    others: tuple[tuple[str, str], ...] = ()
    witnesses: Mapping[str, Mapping[str, str | Least]] = field(default_factory=dict)  # rule -> parameter -> function
    parameters: tuple[tuple[str, Any], ...] = ()  # name and annotation

    @builtins.property
    def firings(self) -> tuple[tuple[str, str | None], ...]:
        """Every rule that may fire, with the predicate that restricts what is chosen for it."""
        return ((self.rule, self.choice), *self.others)

    @builtins.property
    def values(self) -> dict[str, Any]:
        """The annotation of every value that the operation is given, the fields of its records included."""
        found: dict[str, Any] = {}
        for name, kind in self.parameters:
            found |= {one.name: one.type for one in fields(kind)} if is_dataclass(kind) else {name: kind}
        return found

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters, made of the values that the operation is given: a record takes those that it names."""
        found: dict[str, Any] = {}
        for name, kind in self.parameters:
            is_record = is_dataclass(kind) and isinstance(kind, type)
            found[name] = kind(**{one.name: values[one.name] for one in fields(kind)}) if is_record else values[name]
        return found


STATES = ("start", "state")  # what the functions of a contract call the two states


@dataclass
class Collected:
    """Everything that the decorators below have marked, in the order of the text."""

    functions: list[Callable[..., Any]] = field(default_factory=list)
    steps: list[Callable[..., None]] = field(default_factory=list)
    rules: list[Callable[..., None]] = field(default_factory=list)
    invariants: list[Claim] = field(default_factory=list)
    theorems: list[Claim] = field(default_factory=list)
    contracts: list[Contract] = field(default_factory=list)


COLLECTED = Collected()  # of block managers: `kvproof.spec.text` and `kvproof.spec.contracts`
COLLECTED_OF_STORES = Collected()  # of `kvproof.spec.store`


def _collected(marked: Callable[..., Any]) -> Collected:
    """What the decorators have marked in the specification that a function belongs to."""
    return COLLECTED_OF_STORES if f"{marked.__module__}".startswith("kvproof.spec.store.") else COLLECTED


def predicate(marked: Function) -> Function:
    """Mark a named condition: one `return` of a truth value."""
    _collected(marked).functions.append(marked)
    return marked


def function(marked: Function) -> Function:
    """Mark a named number: one `return` of an integer."""
    _collected(marked).functions.append(marked)
    return marked


def step(marked: Function) -> Function:
    """Mark writes that several rules share."""
    _collected(marked).steps.append(marked)
    return marked


def rule(marked: Function) -> Function:
    """Mark a smallest step of the specification."""
    _collected(marked).rules.append(marked)
    return marked


def invariant(property: str) -> Callable[[Function], Function]:
    """Mark a claim that every reachable state satisfies."""
    return lambda marked: _claim(_collected(marked).invariants, property, marked)


def theorem(property: str) -> Callable[[Function], Function]:
    """Mark a claim that follows from the invariants."""
    return lambda marked: _claim(_collected(marked).theorems, property, marked)


def contract(
    property: str,
    rule: Callable[..., None],
    *,
    precondition: Callable[..., bool],
    variant: Callable[..., int],
    loop_invariant: Callable[..., bool],
    choice: Callable[..., bool] | None = None,
    can_choose: Callable[..., bool] | None = None,
    others: dict[Callable[..., None], Callable[..., bool]] | None = None,
    witnesses: dict[Callable[..., None], dict[str, Callable[..., Any] | Least]] | None = None,
) -> Callable[[Function], Function]:
    """Mark the postcondition of an operation; see `Contract`.

    Raises TypeError if a parameter that is chosen for a firing has no witness, if two rules have a `least` witness for
    a parameter of one name, or if something is chosen without a `can_choose`: then no obligation would say that the
    operation always has a choice.
    """

    def mark(done: Function) -> Function:
        sentence = (done.__doc__ or "").strip()
        names = (rule.__name__, precondition.__name__, variant.__name__, loop_invariant.__name__)
        chosen, can = (each and each.__name__ for each in (choice, can_choose))
        further = tuple((other.__name__, other_choice.__name__) for other, other_choice in (others or {}).items())
        parameters: dict[str, Any] = {}
        for one in (precondition, variant, loop_invariant, can_choose, done):
            if one is not None:
                parameters |= {name: each.annotation for name, each in signature(one).parameters.items()}
        given = tuple((name, kind) for name, kind in parameters.items() if name not in STATES)
        chosen_by = {
            one.__name__: {name: by if isinstance(by, Least) else by.__name__ for name, by in each.items()}
            for one, each in (witnesses or {}).items()
        }
        made = Contract(property, done.__name__, sentence, *names, chosen, can, further, chosen_by, given)
        for one in (rule, *(others or ())):
            unknown = set(list(signature(one).parameters)[1:]) - made.values.keys()
            if unknown != chosen_by.get(one.__name__, {}).keys():
                raise TypeError(f"{done.__name__}: give a witness for each of {sorted(unknown)} of {one.__name__}")
        least_ones = [name for each in chosen_by.values() for name, by in each.items() if isinstance(by, Least)]
        if len(set(least_ones)) < len(least_ones):  # one unknown cannot be the least of two sets
            raise TypeError(f"{done.__name__}: two least elements have one name among {sorted(least_ones)}")
        if can is None and any((chosen, further, chosen_by)):
            raise TypeError(f"{done.__name__}: give can_choose, as there is a choice")
        _collected(done).contracts.append(made)
        return done

    return mark


def _claim(claims: list[Claim], property: str, marked: Function) -> Function:
    claims.append(Claim(property, marked.__name__, (marked.__doc__ or "").strip()))
    return marked


def _read_only() -> NoReturn:
    raise TypeError("the specification is compiled by kvproof.spec.native or translated; it does not run by itself")


def require(condition: bool, sentence: str, property: str = "") -> None:
    """A guard. property: what an implementation breaks if it acts although the guard does not hold."""
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
    """A copy of a row, or of rows."""
    _read_only()


def spliced(row: Row, start: int, stop: int, source: Row) -> Row:
    """The row with the slots from `start` up to `stop` taken from `source`."""
    _read_only()


def same(one: Row, other: Row, stop: int) -> bool:
    """Whether two rows agree in the slots before `stop`."""
    _read_only()
