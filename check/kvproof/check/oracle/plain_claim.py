"""What fails at the end of a run, as an assertion in plain Python.

What the manager shows is written as the adapter reads it: the expression that its `refcounts` returns, for example,
with the objects of the script in place of `self`. If the judge compared two values of which one is shown so, they are
compared again. Otherwise the assertion is that the manager does not show what it showed when the judge refuted it.
"""

import ast
import builtins
import inspect
import textwrap
from collections.abc import Sequence
from typing import Any, Protocol

from kvproof.check.oracle.earlier_change import SHOWS
from kvproof.check.oracle.plain_values import PLAIN, Names, NotWritten, is_of_kvproof, is_plain, parts_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Observation
from kvproof.check.protocol.manager_adapter import ManagerAdapter

SHOWN_BY = {"tables": "tables", "free": "num_free", "refs": "refcounts", "free_ids": "free_ids"}
FREE = ("conservation", "no-leak-at-rest")  # properties that may compare the number of free blocks
SHOWN_MAX, DATA_MAX, DATA_DEPTH_MAX = 2000, 12, 2
CLOSED = (ast.Name, ast.Attribute, ast.List, ast.ListComp, ast.Call)


class Line(Protocol):
    """A line of the run's last step."""

    code: str
    answer: str
    is_raised: bool


def claim_of(
    subject: Any, names: Names, finding: Finding, last: Sequence[Line], results: Sequence[tuple[str, Any]]
) -> list[str]:
    """The lines with which the script ends. Changes the last call if its answer is asserted. Raises NotWritten.

    results: what the last step's calls answered, if it is no plain data; each with its name.
    """
    text = repr(finding.text.partition("\n")[0])
    if last and last[-1].is_raised and finding.frames:
        call, last[-1].code = last[-1].code, ""
        return [
            "try:",
            f"    {call}",
            "except Exception as error:",
            f"    raise AssertionError({text}) from error",
        ]
    shown = _shown(subject, names)
    compared = _compared(finding, shown)
    if compared:
        return [f"assert {compared} == {finding.expected!r}, (", f"    {text}", ")"]
    answers = _answers(last)
    _require_shown(subject, finding, shown, bool(answers or results))
    parts = [*answers, *((code, repr(value)) for code, value in shown.values())]
    if not shown:
        parts += [part for name, value in results for part in _data_in(name, value)]
    parts = [(code, value) for code, value in parts if len(value) <= SHOWN_MAX]
    if not parts:
        raise NotWritten("nothing that the manager shows can be asserted")
    listed = [f"    {code} == {value}" for code, value in parts]
    return [
        "# In this state, which is shown here, it is refuted.",
        "is_as_refuted = (",
        *(f"{one} and" for one in listed[:-1]),
        listed[-1],
        ")",
        f"assert not is_as_refuted, {text}",
    ]


def _require_shown(subject: Any, finding: Finding, shown: dict[str, Any], is_answered: bool) -> None:
    """Raise NotWritten if a correct manager might show the same: then what is wrong is not among what is asserted."""
    there = {field for field, value in subject.observe()._asdict().items() if value not in (None, (), [], {})}
    needed = SHOWS.get(finding.property, set() if is_answered and not shown else there) & there
    if lacking := sorted(needed - shown.keys()):
        raise NotWritten(f"the adapter does not read {', '.join(lacking)} of the manager in one expression each")


def _compared(finding: Finding, shown: dict[str, tuple[str, Any]]) -> str:
    """What is shown of the value that the judge compared, as an expression; empty if it is not known."""
    if finding.expected is None or finding.observed is None or "$observed" not in finding.sentence:
        return ""
    if finding.property == "refcount-exact" and "refs" in shown and len(finding.blocks) == 1:
        code, refs = shown["refs"]
        return f"{_in_brackets(code)}[{finding.blocks[0]}]" if refs[finding.blocks[0]] == finding.observed else ""
    if finding.property in FREE and "free" in shown and "are free" in finding.sentence and "GPU" in finding.sentence:
        return shown["free"][0] if shown["free"][1] == finding.observed else ""
    return ""


def _in_brackets(code: str) -> str:
    is_closed = isinstance(ast.parse(code, mode="eval").body, CLOSED)
    return code if is_closed else f"({code})"


def _answers(last: Sequence[Line]) -> list[tuple[str, str]]:
    """What the calls of the last step answered, each with the name that its line gives it now."""
    found = list[tuple[str, str]]()
    for line in last:
        if line.answer:
            name = f"answer_{len(found) + 1}" if found else "answer"
            line.code = f"{name} = {line.code}"
            found.append((name, line.answer))
    return found


def _data_in(name: str, value: Any) -> list[tuple[str, str]]:
    """The plain data in an answer, as far as it is near, each with the expression that reads it."""
    found, left = list[tuple[str, str]](), [(name, value, 0)]
    while left and len(found) < DATA_MAX:
        path, thing, depth = left.pop(0)
        for step, part in parts_of(thing):
            if step.startswith("._"):
                continue
            if is_plain(part):
                found.append((f"{path}{step}", repr(part)))
            elif depth < DATA_DEPTH_MAX:
                left.append((f"{path}{step}", part, depth + 1))
    return found[:DATA_MAX]


def _shown(subject: Any, names: Names) -> dict[str, tuple[str, Any]]:
    """For each field of an observation the expression that reads it, and what it is now; as far as it is known."""
    found: dict[str, tuple[str, Any]] = {}
    if isinstance(subject, ManagerAdapter) and type(subject).observe is ManagerAdapter.observe:
        sources = {field: _returned(subject, call, names) for field, call in SHOWN_BY.items()}
        values = {field: getattr(subject, call)() for field, call in SHOWN_BY.items() if sources[field] is not None}
    else:
        sources = _fields_returned(subject, names)
        values = subject.observe()._asdict() if sources else {}
    for field, node in sources.items():
        if node is not None and is_plain(values.get(field)) and _reads_of_manager(node, names):
            found[field] = ast.unparse(node), values[field]
    return found


def _reads_of_manager(node: ast.expr, names: Names) -> bool:
    """Whether an expression reads an object of the manager, and not only what the adapter or kvproof keeps."""
    read = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    objects = {name: type(thing).__module__ for name, thing in names.objects()}
    return any(name in read and not is_of_kvproof(module) for name, module in objects.items())


def _fields_returned(subject: Any, names: Names) -> dict[str, ast.expr | None]:
    """The arguments of the observation that a single `return` of `observe` makes."""
    node = _returned(subject, "observe", names, is_record=True)
    if not isinstance(node, ast.Call):
        return {}
    kind = inspect.unwrap(subject.observe).__globals__.get(ast.unparse(node.func), Observation)
    fields = getattr(kind, "_fields", ())
    found: dict[str, ast.expr | None] = dict(zip(fields, node.args, strict=False))
    found.update({one.arg: one.value for one in node.keywords if one.arg})
    return found


def _returned(subject: Any, call: str, names: Names, is_record: bool = False) -> ast.expr | None:
    """The expression that a call of the adapter returns, without `self`; None if it cannot be written so."""
    method = getattr(type(subject), call)
    if method is getattr(ManagerAdapter, call, None):
        return None
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    body = [one for one in tree.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    written = _Written(subject, names, getattr(method, "__globals__", {}), is_record)
    try:
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    written.local[name] = written.visit(value)
                case ast.Return(value=ast.expr() as value) if statement is body[-1]:
                    returned: ast.expr = written.visit(value)
                    return ast.fix_missing_locations(returned)
                case _:
                    return None
    except NotWritten:
        pass
    return None


class _Written(ast.NodeTransformer):
    """Writes an expression of the adapter without `self`: its attributes are objects of the script, or data."""

    def __init__(self, subject: Any, names: Names, known: dict[str, Any], is_record: bool) -> None:
        self._subject, self._names, self._known, self._is_record = subject, names, known, is_record
        self.local: dict[str, ast.expr] = {}
        self._bound: set[str] = set()

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if self._is_record and isinstance(node.func, ast.Name):  # the record itself, whose fields are looked at
            self._is_record = False
            node.args = [self.visit(one) for one in node.args]
            node.keywords = [ast.keyword(one.arg, self.visit(one.value)) for one in node.keywords]
            return node
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            if callable(getattr(type(self._subject), node.attr, None)):
                raise NotWritten(f"a call of {node.attr}")
            return self._text(getattr(self._subject, node.attr))
        node.value = self.visit(node.value)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Store):
            self._bound.add(node.id)
            return node
        if node.id in self.local:
            return self.local[node.id]
        if node.id in self._bound or (node.id not in self._known and hasattr(builtins, node.id)):
            return node
        if node.id not in self._known:
            raise NotWritten(node.id)
        return self._text(self._known[node.id])

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return self._comprehension(node)

    def _comprehension(self, node: Any) -> ast.expr:
        """The loops first: they bind the names that the rest reads."""
        node.generators = [self.visit(one) for one in node.generators]
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, self.visit(getattr(node, field)))
        return node  # type: ignore[no-any-return]

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        raise NotWritten("a function within")

    def _text(self, value: Any) -> ast.expr:
        if type(value) in PLAIN:
            return ast.Constant(value)
        code = self._names.text(value)
        if self._names.pending:  # a copy that is made only now
            self._names.pending.clear()
            raise NotWritten("an object of kvproof")
        return ast.parse(code, mode="eval").body
