"""Faults of the machinery that proves: changes of its source code after which it asks less, assumes more, or lies.

A fault of the translator or of the making of obligations changes a question, so the cross-check or the pin notices it.
A fault in how solvers are asked, of the lints or of the pin itself changes no question. A named test notices it.
"""

from dataclasses import dataclass
from pathlib import Path

MACHINERY = "machinery"


@dataclass(frozen=True)
class Plant:
    """A fault of one file. file: below the root of a checkout. tests: those that notice it; none if the pin does.

    is_compared: whether the cross-check is asked first, because the fault is in what it compares. suite: the one whose
    obligations are compared with the pin first. kind: the row of the table that counts it. equivalent: why no run can
    show the fault; empty if one can.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    is_compared: bool = False
    suite: str = "specification"
    kind: str = MACHINERY
    equivalent: str = ""

    @property
    def id(self) -> str:
        """The name of the fault, with its kind."""
        return f"{self.kind}/{self.name}"

    def changed(self, root: Path) -> str:
        """The source of the file with the fault. Raises LookupError if the file has not what is replaced, or twice."""
        source = (root / self.file).read_text(encoding="utf-8")
        if source.count(self.old) != 1:
            raise LookupError(f"{self.id}: {self.file} has {source.count(self.old)} times {self.old!r}, not once")
        return source.replace(self.old, self.new)


def _translation(module: str, *faults: tuple[str, str, str]) -> list[Plant]:
    """Faults of the translator: the cross-check and the pin are asked."""
    file = f"models/kvproof/models/translation/{module}.py"
    return [Plant(name, file, old, new, is_compared=True) for name, old, new in faults]


def _proofs(module: str, suite: str, *faults: tuple[str, str, str]) -> list[Plant]:
    """Faults of the making of obligations: the pin is asked."""
    return [Plant(name, f"models/kvproof/models/{module}.py", old, new, suite=suite) for name, old, new in faults]


def _tested(file: str, test: str, *faults: tuple[str, str, str]) -> list[Plant]:
    """Faults that change no question: a test is asked."""
    return [Plant(name, file, old, new, (f"tests/{test}",)) for name, old, new in faults]


MODELS, PROVING = "models/kvproof/models", "check/kvproof/check/proving"

SIZES_AND_DOMAINS = [
    *_translation(
        "sizes",
        ("blocks have two slots or more", 'SMALLEST = {"BLOCK_SIZE": 1}', 'SMALLEST = {"BLOCK_SIZE": 2}'),
        (
            "there are at most two sequences",
            "            yield at_least\n",
            '            yield from (at_least, self.numbers["NUM_SEQS"] <= 2)\n',
        ),
        ("the host has a block", 'gpu if name == "NUM_BLOCKS"', 'gpu + 1 if name == "NUM_BLOCKS"'),
        (
            "domains end one earlier",
            "return is_between(0, term, self.size(domain))",
            "size = self.size(domain)\n        return is_between(0, term, None if size is None else size - 1)",
        ),
    ),
    *_translation(
        "translator",
        (
            "no rule is given id 0",
            "return Parameter(name, number, self.universe.contains(domain, number), domain)",
            "return Parameter(name, number, z3.And(number > 0, self.universe.contains(domain, number)), domain)",
        ),
        (
            "the state at the start is the state now",
            "self._unknown(prefix + name, field)",
            "self._unknown(name, field)",
        ),
    ),
]

RUNS = _translation(
    "rules",
    (
        "the other side of a branch is dropped",
        "            no = self._block(node.orelse, frame)\n",
        "            no = yes\n",
    ),
    (
        "a guard holds on every path",
        "condition = self.conditions.under_path(self.expressions.truth(node.args[0], frame))",
        "condition = self.expressions.truth(node.args[0], frame)",
    ),
    (
        "only the first guard disables",
        "            self.conditions.guard = conjunction(self.conditions.guard, condition)\n",
        "            self.conditions.guard = self.conditions.guard if len(self.outcome.guards) > 1 else condition\n",
    ),
    (
        "checks hold",
        "Required(text, texts[0], frame.chain, frame.place(node), condition)",
        "Required(text, texts[0], frame.chain, frame.place(node), True)",
    ),
    (
        "a step leaves the state as it was",
        "return frame.named(**{node.args[0].id: after.names[parameters_of(function, file)[0]]})",
        "return frame if after else frame",
    ),
    (
        "a write demands no range",
        "            self.expressions.in_range(index, domain, target, frame)\n",
        "            assert domain\n",
    ),
)

EXPRESSIONS = [
    *_translation(
        "states",
        (
            "rows are the same without their last slot",
            'slot = self.conditions.fresh("slot")\n        known = is_between(0, slot, stop)',
            'slot = self.conditions.fresh("slot")\n        known = is_between(0, slot, stop - 1)',
        ),
        ("all is any", 'quantifier = for_all if name == "all" else for_some', "quantifier = for_some"),
        (
            "a splice begins at slot 0",
            "choice(is_between(start, slot, stop), source.read(slot), row.read(slot))",
            "choice(is_between(0, slot, stop), source.read(slot), row.read(slot))",
        ),
        (
            "what is implied is true",
            "return implication(condition, self.truth(arguments[1], frame))",
            "return implication(condition, self.truth(arguments[1], frame) is not None)",
        ),
        (
            "subscripts demand nothing",
            "self.conditions.demand(self.universe.contains(domain, index), text, frame.chain, frame.place(node))",
            "self.conditions.demand(True, text, frame.chain, frame.place(node))",
        ),
    ),
    *_translation(
        "conditions",
        ("nothing is demanded", "        if self.is_silent:\n", "        if not self.is_silent:\n"),
        (
            "demands under the first condition only",
            "return conjunction(self.guard, *self._path)",
            "return conjunction(self.guard, *self._path, False)",
        ),
        (
            "a branch may be taken either way",
            "return implication(conjunction(*self._path), formula)",
            "return implication(conjunction(*self._path[1:]), formula)",
        ),
    ),
    *_translation(
        "terms",
        (
            "a conjunction loses its last part",
            "return every(unknown) if unknown",
            "return every(unknown[:-1]) if unknown",
        ),
        (
            "numbers that are quantified over are positive",
            "z3.ForAll(variables, z3.Implies(known, body))",
            "z3.ForAll(variables, z3.Implies(z3.And(known, variables[0] > 0), body))",
        ),
        (
            "min is max",
            "found = number(choice(term < found, term, found))",
            "found = number(choice(term > found, term, found))",
        ),
        ("less is less or equal", '"Lt": lambda one, other: one < other', '"Lt": lambda one, other: one <= other'),
    ),
    *_translation(
        "maps",
        (
            "a write compares the first index only",
            "is_there = conjunction(*[equal(index, written) for index, written in zip(indexes, path, strict=False)])",
            "is_there = equal(indexes[0], path[0])",
        ),
        (
            "after a branch the first side is kept",
            "found = chosen(condition, map, no.maps[name])",
            "found = chosen(condition, map, map)",
        ),
    ),
]

OBLIGATIONS = [
    *_proofs(
        "proofs/induction",
        "specification",
        (
            "only the first demand of a claim",
            "self.translator.run(name, self.before).demands, self.assumed)",
            "self.translator.run(name, self.before).demands[:1], self.assumed)",
        ),
        (
            "False is assumed",
            "enabled = known + guards(",
            'enabled = (*known, Hypothesis("no harm", z3.BoolVal(False))) + guards(',
        ),
        (
            "an invariant is assumed of the state after",
            "            goal = self._invariant(claim.name, outcome.state)\n",
            "            goal = self._invariant(claim.name, outcome.state)\n"
            "            enabled += hypotheses([(claim.name, goal)])\n",
        ),
        (
            "every rule keeps every invariant as it is",
            "if not changed & self._depends[name]:",
            "if changed is not None:",
        ),
        ("no first state", "        yield Unit(self.suite, INITIAL, self.initial)\n", ""),
        ("no theorems", "        yield Unit(self.suite, THEOREM, self.theorems)\n", ""),
        (
            "the last rule is lost",
            "        for rule in self.collected.rules:\n",
            "        for rule in self.collected.rules[:-1]:\n",
        ),
        (
            "checks are not proved",
            "        yield from checked(self.suite, name, outcome.checks, enabled)\n",
            "",
        ),
        (
            "of demands with one text the first is proved",
            "assumed, conjunction(*parts), places[key])",
            "assumed, parts[0], places[key])",
        ),
        (
            "a derived field is compared with itself",
            "goal = equal(self.before.maps[name].read(*indexes), twin.maps[name].read(*indexes))",
            "goal = equal(self.before.maps[name].read(*indexes), self.before.maps[name].read(*indexes))",
        ),
        (
            "values are defined where the rule is enabled, and its checks hold",
            "        yield from defined(self.suite, name, outcome.demands, known)\n",
            "        known += hypotheses((one.text, one.formula) for one in outcome.checks)\n"
            "        yield from defined(self.suite, name, outcome.demands, known)\n",
        ),
    ),
    *_proofs(
        "proofs/contracts",
        "operations",
        (
            "an operation need not end",
            "fired, conjunction(0 <= left_after, left_after < left))",
            "fired, conjunction(left_after <= left))",
        ),
        (
            "an operation always goes on",
            'yield self._of("goes on", unfinished, can_choose)',
            'yield self._of("goes on", unfinished, True)',
        ),
        (
            "one of the witnesses is enough, whatever it is",
            "choosing + tuple(lemmas), disjunction(*choices))",
            "choosing + tuple(lemmas), disjunction(True, *choices))",
        ),
        (
            "the loop invariant is kept in the state before",
            "self.afterwards.parts(contract.loop_invariant, start=self.start, state=after)",
            "self.now.parts(contract.loop_invariant, start=self.start, state=self.state)",
        ),
        (
            "the operation begins where it is done",
            'hypotheses([("nothing is left", left == 0)])',
            'hypotheses([("nothing is left", left == 0), '
            '("done", self.now.truth(contract.name, start=start, state=state))])',
        ),
        (
            "guards of firings are assumed",
            "        for guard in one.outcome.guards:\n            yield",
            "        firing += hypotheses((guard.text, guard.formula) for guard in one.outcome.guards)\n"
            "        for guard in one.outcome.guards:\n            yield",
        ),
        (
            "of a predicate the first conjunct is proved",
            "for part in whole.values if isinstance(whole, ast.BoolOp)",
            "for part in whole.values[:1] if isinstance(whole, ast.BoolOp)",
        ),
        (
            "the last contract is lost",
            "    for contract in CONTRACTS:\n",
            "    for contract in CONTRACTS[:-1]:\n",
        ),
        (
            "the start satisfies the loop invariant",
            'at_start = self._reachable("start", start)',
            'at_start = self._reachable("start", start) + hypotheses('
            '[("begins", self.at_first.truth(contract.loop_invariant, start=start, state=start))])',
        ),
    ),
    *_proofs(
        "proofs/multiplication_lemma",
        "operations",
        (
            "the lemma about products is false",
            "z3.Implies(one < other, one * size + size <= other * size)",
            "z3.Implies(one < other, other * size + size <= one * size)",
        ),
    ),
    *_proofs(
        "obligation",
        "specification",
        (
            "a goal with any hypothesis is trivial",
            "self.goal.get_id() in _ids(self.hypotheses)",
            "len(self.hypotheses) > 0",
        ),
    ),
]

QUESTIONS = [
    *_tested(
        f"{MODELS}/translation/rules.py",
        "models/translation/test_language.py",
        (
            "local names are of the first side",
            "                names[name] = chosen(condition, one, other)\n",
            "                names[name] = one\n",
        ),
    ),
    *_tested(
        f"{MODELS}/translation/terms.py",
        "models/translation/test_integer_functions.py",
        (
            "a truth value counts 0",
            "conditional(term, constant(1), constant(0))",
            "conditional(term, constant(0), constant(0))",
        ),
    ),
    *_tested(
        f"{MODELS}/proofs/induction.py",
        "models/proofs/test_proofs.py::test_each_of_two_checks_with_one_text_is_proved",
        (
            "of checks with one text the first is proved",
            "goal = conjunction(*(one.formula for one in parts))",
            "goal = parts[0].formula",
        ),
    ),
    *_tested(
        f"{MODELS}/obligation.py",
        "models/solvers/test_solving.py",
        ("a goal that is False is trivial", "            return self.goal\n", "            return True\n"),
        ("the negated goal is False", "else z3.Not(self.goal)", "else z3.BoolVal(False)"),
        (
            "the goal is among the hypotheses of the question",
            "return _assumed(self.hypotheses), NO_GOAL",
            'return _assumed((*self.hypotheses, Hypothesis("goal", z3.Not(self.negated_goal())))), NO_GOAL',
        ),
    ),
    *_tested(
        f"{MODELS}/solvers/solving.py",
        "models/solvers/test_solving.py",
        ("unknown counts as proved", '"unknown": Verdict.UNKNOWN', '"unknown": Verdict.PROVED'),
        ("a model counts as a proof", '"sat": Verdict.REFUTED', '"sat": Verdict.PROVED'),
        (
            "a hypothesis too many is asked",
            "        solver.add(*hypotheses, *negated_goal)\n",
            "        solver.add(*hypotheses, *negated_goal, z3.BoolVal(False, solver.ctx))\n",
        ),
        (
            "a hypothesis is denied in place of the goal",
            "negated_goal = list(z3.parse_smt2_string(goal, ctx=context))",
            "negated_goal = [z3.Not(one) for one in hypotheses]",
        ),
        ("the goals of an earlier question stay", "        self._solver.pop()\n", ""),
        (
            "the hypotheses of an earlier question stay",
            "        if assumed != known:\n",
            '        if not hasattr(self, "_solver"):\n',
        ),
        (
            "the goal of a question that did not end stays",
            "known, self._assumed = self._assumed, None",
            "known = self._assumed",
        ),
        (
            "what is not proved together is not asked alone",
            '        if answer == "unsat" or goal == NO_GOAL:\n',
            "        if answer:\n",
        ),
    ),
    *_tested(
        f"{PROVING}/questions.py",
        "check/proving/test_questions.py",
        (
            "trivial obligations are lost on the way",
            "                self.decided.append(ProofOutcome(obligation, TRIVIAL, is_trivial=True))\n",
            "",
        ),
        (
            "every obligation is trivial",
            "            if obligation.is_trivial():\n",
            "            if obligation is not None:\n",
        ),
        (
            "a question that a process did not answer is proved",
            "Answer(Verdict.UNKNOWN, reason=how)",
            "Answer(Verdict.PROVED, reason=how)",
        ),
    ),
    *_tested(
        f"{MODELS}/solvers/second_solver.py",
        "models/solvers/test_second_solver.py",
        (
            "the second solver's unknown counts as proved",
            "return Answer(VERDICTS[answer], time",
            'return Answer(VERDICTS["unsat" if answer == "unknown" else answer], time',
        ),
    ),
    *_tested(
        f"{MODELS}/proofs/instances.py",
        "models/solvers/test_second_solver.py",
        (
            "the claim after is assumed where it is denied",
            'where it is denied", _of(before, constants))',
            'where it is denied", _of(goal, constants))',
        ),
    ),
]

AROUND = [
    *_tested(
        f"{MODELS}/proofs/lints.py",
        "models/proofs/test_lints.py",
        ("guards may come late", "            if has_acted[0]:\n", "            if has_acted[0] and not body:\n"),
        (
            "rows may have two names",
            "    return bool(left) and not (len(left) == 1",
            "    return False and not (len(left) == 1",
        ),
        (
            "functions may call themselves",
            "        circle = error.args[1]\n",
            "        return\n        circle = error.args[1]\n",
        ),
        (
            "functions may have many returns",
            "        if returned(function) is None:\n",
            "        if function is None:\n",
        ),
        ("claims may name any property", "if name not in MEANINGS:", "if not name:"),
    ),
    *_tested(
        f"{MODELS}/proofs/ghost_fields.py",
        "models/proofs/test_lints.py",
        (
            "guards may read ghost fields",
            "            if is_tainted or self._reads_ghost(node.value.args[0], names):\n",
            "            if is_tainted:\n",
        ),
    ),
    *_tested(
        f"{MODELS}/vacuity.py",
        "models/test_vacuity.py",
        (
            "no contradiction is found",
            "        if outcome.answer.verdict is Verdict.PROVED:\n",
            "        if outcome is None:\n",
        ),
        (
            "what a search leaves open has a model",
            "        elif outcome.answer.verdict is Verdict.UNKNOWN:\n",
            "        elif outcome is None:\n",
        ),
        (
            "every rule fires",
            "    yield from ((name, False) for name in left)",
            "    yield from ((name, True) for name in left)",
        ),
    ),
    *_tested(
        f"{MODELS}/pin.py",
        "models/test_pin.py",
        (
            "what vanishes is not reported",
            "            if is_selected is None or (kind != ASSUMPTION and is_selected(name)):\n",
            "            if is_selected is not None and kind != ASSUMPTION and not is_selected(name):\n",
        ),
        (
            "goals are not compared",
            "if before[name].goal != self._obligations[name].goal]",
            "if before[name].goal is None]",
        ),
        ("hypotheses are not compared", "        if before != now:\n", "        if before is None:\n"),
        (
            "assumptions are not pinned",
            "            if _is_assumption(suite, one):\n",
            "            if suite is None:\n",
        ),
        (
            "the property of a claim is not pinned",
            "self._digests.of([obligation.goal], obligation.property)",
            "self._digests.of([obligation.goal])",
        ),
        ("a line that stands there twice is accepted", "if line in known:", "if False:"),
    ),
    *_tested(
        f"{MODELS}/proofs/digests.py",
        "models/proofs/test_digests.py",
        (
            "digests do not read arguments",
            "_digest([head, *inside], NUM_BYTES_INSIDE)",
            "_digest([head], NUM_BYTES_INSIDE)",
        ),
        (
            "digests do not tell quantifiers apart",
            '"forall" if term.is_forall() else',
            '"exists" if term.is_forall() else',
        ),
    ),
    *_tested(
        f"{PROVING}/asked.py",
        "check/cli/test_prove.py",
        (
            "the pin is not compared",
            "        if self._pin.lines:\n",
            "        if not self._pin.lines:\n",
        ),
        (
            "a pattern that matches nothing is accepted",
            "                        yield one\n        for pattern in self.selection.unmatched:\n",
            "                        yield one\n        for pattern in self.selection.unmatched[:0]:\n",
        ),
        (
            "every second obligation is lost on the way",
            "                        self._pin.add(one)\n                        yield one\n",
            "                        self._pin.add(one)\n                        if len(one.id) % 2:\n"
            "                            yield one\n",
        ),
    ),
    *_tested(
        f"{PROVING}/checks.py",
        "check/cli/test_prove.py",
        (
            "what is open is proved",
            "        if one.answer.verdict is Verdict.PROVED:\n            return one",
            "        if one.answer.verdict is not None:\n            return one",
        ),
    ),
    *_tested(
        f"{PROVING}/vacuity.py",
        "check/cli/test_prove.py",
        (
            "no contradiction is searched",
            "            if search is not None and (",
            "            if search is None and (",
        ),
    ),
    *_tested(
        f"{PROVING}/asked.py",
        "check/proving/test_stage.py",
        (
            "the gate compares no pin",
            "(*self.lint_checks(), *self.pin_checks())",
            "(*self.lint_checks(),)",
        ),
        (
            "the gate runs no lints",
            "(*self.lint_checks(), *self.pin_checks())",
            "(*self.pin_checks(),)",
        ),
    ),
    *_tested(
        f"{PROVING}/checks.py",
        "check/cli/test_prove.py",
        (
            "a difference from the pin is no failure",
            "        return refuted(check, Disagreement(text, differences))\n",
            "        return check\n",
        ),
        (
            "findings of lints are no failure",
            "        return refuted(check, BadPlaces(text, [one.place for one in findings]))\n",
            "        return check\n",
        ),
    ),
    *_tested(
        f"{PROVING}/options.py",
        "check/cli/test_prove.py",
        (
            "solvers may contradict each other",
            "    if {first.answer.verdict, verdict} == {Verdict.PROVED, Verdict.REFUTED}:\n",
            "    if not verdict:\n",
        ),
    ),
]

CODE = [
    *_proofs(
        "refinement/simulation",
        "refinement",
        (
            "any error may be raised",
            "never: list[Agreement] = [(NO_STATE, WELL_DEFINED, z3.BoolVal(False))]",
            "never: list[Agreement] = [(NO_STATE, WELL_DEFINED, z3.BoolVal(True))]",
        ),
        ("of claims with one sentence the first is proved", "goal = every(parts)", "goal = parts[0]"),
        ("paths may be forgotten", "some(paths), place)", "z3.BoolVal(True), place)"),
        (
            "claims hold without their path",
            "z3.Implies(one.condition, formula)",
            "z3.Implies(z3.And(one.condition, formula), formula)",
        ),
    ),
    *_tested(
        f"{MODELS}/refinement/unbounded.py",
        "models/refinement/test_containers.py",
        ("a queue forgets no item", "lambda k: before(k + 1)", "lambda k: before(k)"),
        (
            "a list is written at its start",
            "z3.If(i == at, number(value), before(i))",
            "z3.If(i == 0, number(value), before(i))",
        ),
    ),
    *_proofs(
        "refinement/unknown",
        "refinement",
        (
            "fields have their first values",
            "        if name not in known:\n",
            "        if name not in known and not name:\n",
        ),
    ),
    *_tested(
        f"{MODELS}/refinement/simulation.py",
        "models/refinement/test_replays.py",
        ("replays agree", 'return ", ".join(done.twin.differences(made, value))', 'return ""'),
    ),
    *_tested(
        f"{MODELS}/refinement/loops.py",
        "models/refinement/test_loops.py",
        ("locals may go on", "                self.carried.append(name)\n", "                continue\n"),
        ("no state is earlier", "            one.become(earlier)\n", "            assert earlier\n"),
        (
            "anything may go over the items",
            "        if self.is_begun or not _is_for_statement(frame):\n",
            "        if self.is_begun and not _is_for_statement(frame):\n",
        ),
        (
            "what is local is not looked at",
            "return value is None or isinstance(value, unchanging) or head.is_watched(value)",
            "return bool(head)",
        ),
    ),
    *_tested(
        f"{MODELS}/concolic/frame.py",
        "models/concolic/test_constructs.py",
        ("an equal list is the same", "isinstance(before, (int, float, str)) and before", "before"),
        ("new fields are not seen", "sorted(now.keys() | before.keys())", "sorted(before.keys())"),
        ("contents may change", "if same is True and full not in self._changes", "if same is None"),
    ),
    *_tested(
        f"{MODELS}/concolic/refusal.py",
        "models/concolic/test_constructs.py",
        (
            "a refusal can be swallowed",
            "            _NOTED[-1].append(self)\n",
            "            assert _NOTED[-1] is not None\n",
        ),
        ("an unknown value has a class", "    def __class__(self) -> Any:", "    def kind(self) -> Any:"),
    ),
    *_tested(
        f"{MODELS}/concolic/constructs.py",
        "models/concolic/test_constructs.py",
        ("every error may be caught", 'if one.opname == "PUSH_EXC_INFO":', 'if one.opname == "":'),
        ("numbers may be one object", 'if one.opname != "IS_OP" or before is None:', "if before is not None:"),
        ("any function may be called", '_is_error(value) else f"{one.argval} is used"', '_is_error(value) else ""'),
        ("globals may change", "    if one.opname in WRITES_OUTSIDE:\n", "    if not one.opname:\n"),
    ),
    *_tested(
        f"{MODELS}/concolic/exploration.py",
        "models/concolic/test_symbolic.py",
        (
            "the other answer is not tried",
            "return Fork(asked, question, answer, True, False, value, other)",
            "return Fork(asked, question, answer, False, False, value, other)",
        ),
        (
            "a fork is taken for forced",
            "        if result == z3.unsat:\n            return Fork(asked, question, answer",
            "        if result != z3.unknown:\n            return Fork(asked, question, answer",
        ),
    ),
]

NATIVE = [
    Plant(name, "spec/kvproof/spec/compilation.py", old, new, (f"tests/{test}",))
    for name, old, new, test in (
        (
            "natively rows are the same without their last slot",
            '"({0}[:{2}] == {1}[:{2}])"',
            '"({0}[:{2} - 1] == {1}[:{2} - 1])"',
            "models/crosscheck/test_generated_programs.py",
        ),
        (
            "natively a splice leaves the row",
            '"({0}[:{1}] + {3}[{1}:{2}] + {0}[{2}:])"',
            '"({0}[:])"',
            "audit/crosscheck/test_specification.py",
        ),
        (
            "natively no guard refuses",
            'return self.unless(condition, ast.Return(self.constant("GUARD", guard)), node)',
            'return self.unless(ast.Constant(guard is not None), ast.Return(self.constant("GUARD", guard)), node)',
            "audit/crosscheck/test_specification.py",
        ),
        (
            "natively no check fails",
            "            if not self.with_checks:\n",
            "            if self.with_checks is not None:\n",
            "spec/test_native_runs.py::test_an_obligation_that_does_not_hold_is_raised_with_its_property",
        ),
        (
            "natively the parts of a condition change places",
            "loop.ifs.append(parts.pop(0))",
            "loop.ifs.append(parts.pop())",
            "spec/test_native_runs.py",
        ),
        (
            "natively a part of a condition is lost",
            "        while parts and not later & _names_in(parts[0]):\n",
            "        parts = parts[1:] or parts\n        while parts and not later & _names_in(parts[0]):\n",
            "spec/test_native_runs.py",
        ),
    )
]

PLANTS = (*SIZES_AND_DOMAINS, *RUNS, *EXPRESSIONS, *OBLIGATIONS, *QUESTIONS, *AROUND, *CODE, *NATIVE)
