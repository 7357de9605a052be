"""Programs of the language, drawn by chance: a state, functions, steps, one rule and claims, as source text."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from textwrap import indent

from hypothesis import strategies as st
from tests.models.crosscheck.expressions import DOMAIN_NAMES, Callee, Expressions, FieldText, Scope

from kvproof.spec import language
from kvproof.spec.language import Domain

SHAPES: tuple[tuple[tuple[Domain, ...], Domain], ...] = (
    ((language.BLOCKS,), language.BLOCKS),
    ((language.BLOCKS,), language.COUNTS),
    ((language.SEQS,), language.FLAGS),
    ((language.SEQS, language.INDEXES), language.BLOCKS),
    ((language.SEQS, language.INDEXES, language.SLOTS), language.IDENTITIES),
    ((language.POOLS, language.STATUSES), language.COUNTS),
    ((language.POOLS, language.STATUSES, language.RANKS), language.BLOCKS),
    ((language.SEQS,), language.SLOTS),
    ((language.FLIGHTS,), language.ENTRIES),
    ((language.BLOCKS, language.SEQS), language.FLAGS),
)
PARAMETERS: dict[str, Domain | tuple[Domain, ...] | None] = {
    "BlockId": language.BLOCKS,
    "SeqId": language.SEQS,
    "FlightId": language.FLIGHTS,
    "PoolId": language.POOLS,
    "Index": language.INDEXES,
    "Count": language.COUNTS,
    "Slot": language.SLOTS,
    "Row": (language.SLOTS,),
    "Ages": (language.BLOCKS,),
}
DEPTH = 2

EXPRESSIONS = """
    arithmetic; //; %; negative dividend; min; max; abs; unary minus; truth as number; conditional expression;
    guarded conditional; field; function; nested subscript; subscript of a row; comparison; chained comparison; flag;
    equal truth values; not; and; or; short circuit; implies; conditional truth value; quantifier; several generators;
    shadowed name; endless domain; nested quantifier; quantifier in a comprehension; claim about every cell; same;
    quantifier over the name of one in a cell; predicate; comprehension; copied; put; spliced; conditional row
"""
STATEMENTS = """
    local number; += of a local; local truth value; local row; check; guard; guard in a branch; branch; elif; else;
    step; write with =; write with +=; write with -=; replaced field; replaced row; shared row
"""
DECLARATIONS = """
    real field; derived field; ghost field; field of 1 domains; field of 2 domains; field of 3 domains; record;
    function without a state
"""
CONSTRUCTS = frozenset(one.strip() for one in f"{EXPRESSIONS};{STATEMENTS};{DECLARATIONS}".split(";"))


@dataclass(frozen=True)
class Program:
    """The source text of a program, and how often each construct was drawn for it."""

    source: str
    used: Counter[str]


def programs() -> st.SearchStrategy[Program]:
    """Programs of the language: some that Hypothesis chooses and can make smaller, some of a seed, which are larger."""
    seeded = st.integers(0, 2**64).map(Random)
    return st.one_of(st.randoms(use_true_random=False), seeded).map(drawn_program)


def drawn_program(random: Random) -> Program:
    """One program, of the choices that a generator of random numbers makes."""
    return _Writer(random).program()


class _Writer:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.fields = self._fields()
        self.expressions = Expressions(random, self.fields)
        self.used = self.expressions.used
        self.steps: list[Callee] = []

    def _fields(self) -> list[FieldText]:
        shapes = [((language.BLOCKS, language.SLOTS), language.IDENTITIES), ((language.BLOCKS,), language.FLAGS)]
        shapes += self.random.sample(SHAPES, 4)
        kinds = ["real", "real", "real", "real", "derived", "ghost"]
        return [FieldText(f"f{n}", kind, *shape) for n, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))]

    def program(self) -> Program:
        parts = [self._start(), self._state(), self._record()]
        scope = Scope()
        for name, is_truth in (("amount", False), ("is_near", True), ("level", False), ("is_fit", True)):
            text, callee = self._function(name, is_truth, scope)
            parts.append(text)
            scope = replace(scope, callees=(*scope.callees, callee))
        parts += [self._step(scope), self._rule(scope)]
        claims = [("invariant", "first_claim"), ("theorem", "second_claim")]
        parts += [self._claim(mark, name, scope) for mark, name in claims]
        parts.append(self._of_two_states(scope))
        return Program("\n\n".join(parts), Counter({name: times for name, times in self.used.items() if times}))

    # Declarations

    def _start(self) -> str:
        value = self.random.choice(("block", "block + 1", "NUM_BLOCKS - block", "0 if block < NUM_GPU_BLOCKS else 1"))
        return f"@function\ndef start_of(block: int) -> int:\n    return {value}\n"

    def _state(self) -> str:
        lines = ["class State:"]
        for one in self.fields:
            start = "False" if one.is_truth else self.random.choice(("0", "NONE", "1"))
            if one.to is language.BLOCKS and language.BLOCKS in one.domains:
                start = "start_of"
            self.used[f"{one.kind} field"] += 1
            self.used[f"field of {len(one.domains)} domains"] += 1
            domains = ", ".join(DOMAIN_NAMES[domain] for domain in one.domains)
            lines.append(f"    {one.name}: object = {one.kind}({domains}, to={DOMAIN_NAMES[one.to]}, start={start})")
        return "\n".join(lines) + "\n"

    def _record(self) -> str:
        return "@dataclass(frozen=True)\nclass Pair:\n    seq: SeqId\n    total: Count\n    ages: Ages\n"

    def _parameters(self, scope: Scope, kinds: Sequence[str], num_max: int) -> tuple[Scope, list[str], list[str]]:
        """A scope with parameters, their names, and their kinds."""
        names: list[str] = []
        chosen: list[str] = []
        for _ in range(self.random.randint(1, num_max)):
            kind, name = self.random.choice(kinds), self.expressions.name()
            if name in names:
                continue
            domain = PARAMETERS[kind]
            if isinstance(domain, tuple):
                scope = replace(scope, rows=((name, domain), *scope.rows))
            else:
                scope = scope.bound(name, domain)
            names.append(name)
            chosen.append(kind)
        return scope, names, chosen

    def _function(self, name: str, is_truth: bool, scope: Scope) -> tuple[str, Callee]:
        has_state = self.expressions.is_chosen(0.75)
        if not has_state:
            self.used["function without a state"] += 1
            scope = replace(scope, states=(), callees=tuple(one for one in scope.callees if not one.has_state))
        inner, names, kinds = self._parameters(scope, list(PARAMETERS), 3)
        write = self.expressions.truth if is_truth else self.expressions.number
        mark, result = ("predicate", "bool") if is_truth else ("function", "int")
        given = ["state: State"] * has_state + [f"{one}: {kind}" for one, kind in zip(names, kinds, strict=True)]
        text = f"@{mark}\ndef {name}({', '.join(given)}) -> {result}:\n    return {write(inner, DEPTH)}\n"
        return text, Callee(name, tuple(PARAMETERS[kind] for kind in kinds), is_truth, has_state)

    def _step(self, scope: Scope) -> str:
        inner, names, kinds = self._parameters(scope, list(PARAMETERS), 3)
        given = "".join(f", {one}: {kind}" for one, kind in zip(names, kinds, strict=True))
        body, _ = self._block(inner, 1, self.random.randint(1, 3))
        self.steps.append(Callee("move", tuple(PARAMETERS[kind] for kind in kinds)))
        return f"@step\ndef move(state: State{given}) -> None:\n{indent(body, '    ')}"

    def _rule(self, scope: Scope) -> str:
        inner, names, kinds = self._parameters(scope, list(PARAMETERS), 4)
        given = "".join(f", {one}: {kind}" for one, kind in zip(names, kinds, strict=True))
        guards, inner = self._guards(inner)
        body, _ = self._block(inner, 2, self.random.randint(2, 5))
        return f"@rule\ndef advance(state: State{given}) -> None:\n{indent(guards + body, '    ')}"

    def _guards(self, scope: Scope) -> tuple[str, Scope]:
        lines = []
        for number in range(self.random.randint(0, 2)):
            self.used["guard"] += 1
            guard = f'require({self.expressions.truth(scope, DEPTH)}, "guard {number}", "property-{number}")\n'
            if self.expressions.is_chosen(0.25):
                self.used["guard in a branch"] += 1
                guard = f"if {self.expressions.truth(scope, 1)}:\n    {guard}"
            lines.append(guard)
        return "".join(lines), scope

    def _claim(self, mark: str, name: str, scope: Scope) -> str:
        scope = replace(scope, is_ghostly=True)
        if self.expressions.is_chosen(0.9 if self.used["quantifier over the name of one in a cell"] else 0.4):
            self.used["claim about every cell"] += 1
            condition = self.expressions.about_cells(scope, DEPTH)
        else:
            condition = self.expressions.truth(scope, DEPTH + 1)
        return f'@{mark}("some-property")\ndef {name}(state: State) -> bool:\n    return {condition}\n'

    def _of_two_states(self, scope: Scope) -> str:
        self.used["record"] += 1
        scope = replace(scope, is_ghostly=True, states=("start", "state"), rows=(("pair.ages", (language.BLOCKS,)),))
        scope = scope.with_number("pair.seq", language.SEQS).with_number("pair.total")
        condition = f"pair.total <= {self.expressions.number(scope, 1)} or {self.expressions.truth(scope, DEPTH + 1)}"
        return f"@predicate\ndef is_kept(start: State, state: State, pair: Pair) -> bool:\n    return {condition}\n"

    # Statements

    def _block(self, scope: Scope, depth: int, num_statements: int) -> tuple[str, Scope]:
        lines = []
        for _ in range(num_statements):
            line, scope = self._statement(scope, depth)
            lines.append(line)
        return "".join(lines), scope

    def _statement(self, scope: Scope, depth: int) -> tuple[str, Scope]:
        options: list[tuple[str, Callable[[Scope], tuple[str, Scope]]]] = [
            ("local number", self._local_number),
            ("local truth value", self._local_truth),
            ("local row", self._local_row),
            ("check", self._check),
            *[("write", self._write)] * 3,  # counted by its operator too
            *[("replaced field", self._replaced)] * 2,
            *[("replaced row", self._replaced_row)] * 2,
        ]
        if depth > 0:
            options += [("branch", lambda one: self._branch(one, depth - 1))] * 3
        if self.steps:
            options += [("step", self._call_of_step)] * 2
        construct, write = self.random.choice(options)
        self.used[construct] += 1
        return write(scope)

    def _local_number(self, scope: Scope) -> tuple[str, Scope]:
        locals_ = [text for text, _ in scope.numbers if text.isidentifier()]
        if locals_ and self.expressions.is_chosen(0.3):
            self.used["+= of a local"] += 1
            name = self.random.choice(locals_)
            return f"{name} += {self.expressions.number(scope, 1)}\n", scope.bound(name, None)
        name = self.expressions.name()
        return f"{name} = {self.expressions.number(scope, DEPTH)}\n", scope.bound(name, None)

    def _local_truth(self, scope: Scope) -> tuple[str, Scope]:
        name = self.expressions.name()
        after = scope.without(name)
        text = f"{name} = {self.expressions.truth(scope, DEPTH)}\n"
        return text, replace(after, truths=(name, *after.truths))

    def _local_row(self, scope: Scope) -> tuple[str, Scope]:
        name = self.expressions.name()
        domains = self.random.choice(((language.SLOTS,), (language.BLOCKS,), (language.SEQS,)))
        after = scope.without(name)
        text = f"{name} = {self.expressions.new_row(scope, DEPTH, domains)}\n"
        return text, replace(after, rows=((name, domains), *after.rows))

    def _check(self, scope: Scope) -> tuple[str, Scope]:
        condition = self.expressions.truth(replace(scope, is_ghostly=True), DEPTH)
        return f'check({condition}, "checked-property")\n', scope

    def _target(self, scope: Scope, min_domains: int) -> tuple[FieldText, Scope]:
        field = self.random.choice([one for one in self.fields if len(one.domains) >= min_domains])
        return field, replace(scope, is_ghostly=field.kind == "ghost")

    def _subscripts(self, scope: Scope, domains: Sequence[Domain]) -> str:
        return "".join(f"[{self.expressions.index(scope, 1, domain)}]" for domain in domains)

    def _write(self, scope: Scope) -> tuple[str, Scope]:
        field, inner = self._target(scope, 1)
        if field.domains[-1] is language.SLOTS:
            return self._replaced_row(scope)
        target = f"state.{field.name}{self._subscripts(inner, field.domains)}"
        if field.is_truth:
            return f"{target} = {self.expressions.truth(inner, DEPTH)}\n", scope
        operator = self.random.choice(("=", "=", "+=", "-="))
        self.used[f"write with {operator}"] += 1
        return f"{target} {operator} {self.expressions.number(inner, DEPTH)}\n", scope

    def _replaced_row(self, scope: Scope) -> tuple[str, Scope]:
        field, inner = self._target(scope, 2)
        if field.is_truth:
            return self._replaced(scope)
        depth = self.random.randint(1, len(field.domains) - 1)
        left = field.domains[depth:]
        may_share = left == (language.SLOTS,) and self.expressions.is_chosen(0.4)
        self.used["shared row"] += may_share
        value = (self.expressions.row if may_share else self.expressions.new_row)(inner, DEPTH, left)
        return f"state.{field.name}{self._subscripts(inner, field.domains[:depth])} = {value}\n", scope

    def _replaced(self, scope: Scope) -> tuple[str, Scope]:
        field, inner = self._target(scope, 1)
        if len(field.domains) == 1 and not field.is_truth and field.kind != "ghost" and self.expressions.is_chosen(0.5):
            self.used["quantifier over the name of one in a cell"] += 1
            return self.expressions.cells_with_a_quantifier(field, self.fields[1]), scope
        name = self.expressions.name()
        within = inner.bound(name, field.domains[0])
        before, quantifiers = f"state.{field.name}[{name}]", self.used["quantifier"]
        left = field.domains[1:]
        if field.is_truth and left:
            return self._write(scope)
        if field.is_truth:
            element = f"{self.expressions.truth(within, DEPTH)} and {before}"
        elif not left:
            element = f"{before} + {self.expressions.number(within, DEPTH)}"
        else:
            changed = self.expressions.new_row(within, 1, left)
            element = f"{changed} if {self.expressions.truth(within, DEPTH)} else {before}"
        self.used["quantifier in a comprehension"] += self.used["quantifier"] > quantifiers
        return f"state.{field.name} = [{element} for {name} in {DOMAIN_NAMES[field.domains[0]]}]\n", scope

    def _branch(self, scope: Scope, depth: int) -> tuple[str, Scope]:
        sides = [self._block(scope, depth, self.random.randint(1, 2))]
        text = f"if {self.expressions.truth(scope, DEPTH)}:\n{indent(sides[0][0], '    ')}"
        if self.expressions.is_chosen(0.3):
            self.used["elif"] += 1
            sides.append(self._block(scope, depth, 1))
            text += f"elif {self.expressions.truth(scope, DEPTH)}:\n{indent(sides[-1][0], '    ')}"
        if self.expressions.is_chosen(0.6):
            self.used["else"] += 1
            sides.append(self._block(scope, depth, self.random.randint(1, 2)))
            text += f"else:\n{indent(sides[-1][0], '    ')}"
        else:
            sides.append(("", scope))
        after = sides[0][1]
        for _, one in sides[1:]:
            after = after.common(one)
        return text, after

    def _call_of_step(self, scope: Scope) -> tuple[str, Scope]:
        given = [self._given(scope, domain) for domain in self.steps[0].parameters]
        return f"{self.steps[0].name}({', '.join(['state', *given])})\n", scope

    def _given(self, scope: Scope, domain: Domain | tuple[Domain, ...] | None) -> str:
        """An argument for a step, which may write: a row is a new one."""
        if isinstance(domain, tuple):
            return self.expressions.new_row(scope, 1, domain)
        return self.expressions.argument(scope, 1, domain)
