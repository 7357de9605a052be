"""The operations and the witnesses as C. Their Python goes beyond the language of the text.

A program is a generator that yields rule calls. In C it is a function that fires them one by one, and returns the
number of the guard or obligation that stops it, or 0. What the caller chooses (`named`) is a function that it passes.
A witness is a function of the state and of the arguments of a firing; `counted_RULE` fires one rule, and counts it with
the witnesses that it reaches. Only the forms that these two modules use are translated; any other is refused.
"""

import ast
from collections.abc import Mapping, Sequence

from kvproof.spec.c_reader.translation import REAL_FIELDS, CTranslator, is_row, size_of
from kvproof.spec.syntax_trees import Functions, functions, functions_of
from kvproof.spec.text import operations, witnesses
from kvproof.spec.text.witnesses import SEEN_AFTER, SEEN_BEFORE, WITNESSES, Witness

PROGRAMS = (
    "admit_sequence",
    "admit_past_window_hit",
    "know_tokens",
    "reserve_entries",
    "drop_reserved",
    "slide_window",
    "compute_tokens",
    "mark_computed",
    "free_sequence",
    "fork_sequence",
    "swap_group",
    "arrive",
    "launch_step",
    "land_step",
    "reset_cache",
)
KINDS = {
    "State": "cell *",
    "int": "int ",
    "bool": "int ",
    "str": "int ",
    "list[int]": "const cell *",
    "Arguments": "const int *",
    "Sequence[int]": "Numbers ",
    "Iterable[int]": "Numbers ",
    "Named": "const Named *",
    "Callable[[int, int], int]": "const Named *",
}
PRELUDE = r"""
typedef struct { const cell *at; int num; } Numbers;
typedef struct Named Named;
struct Named { int (*choose)(const Named *, const cell *state, int, int); const void *choices; };
static void row_of(cell *row, Numbers tokens, int index, int block_size) {
  for (int o = 0; o < block_size; o++) {
    int position = index * block_size + o;
    row[o] = position < tokens.num ? tokens.at[position] : k_NONE;
  }
}
static inline int place_in(const cell *row, int n, int value) {
  for (int i = 0; i < n; i++) if (row[i] == value) return i;
  return -1;
}
static inline int largest(const cell *row, int n) {
  int most = row[0];
  for (int i = 1; i < n; i++) if (row[i] > most) most = row[i];
  return most;
}
enum { NOT_SET = -2 };
static inline int set_default(int *map, int key, int value) {
  if (map[key] == NOT_SET) map[key] = value;
  return map[key];
}
static _Thread_local long *counts;  /* firings by rule, then witnesses */
"""


def _renamed(name: str) -> str:
    """The name in C of a function of the two modules; a rule of the text may have the same name."""
    return f"{name}_program" if name in functions() else name


class ProgramTranslator(CTranslator):
    """The translator, with what generators and witnesses need in addition. text: other rules than those as they are."""

    def __init__(self, text: Functions | None = None) -> None:
        super().__init__(text)
        more = functions_of([operations, witnesses])
        self.text = {**{_renamed(name): function for name, function in more.items()}, **self.text}
        self._kinds: dict[str, str] = {}  # the locals of the function under way that are no numbers: row or map

    def programs(self) -> str:
        """`counted`, and every program. The rules must have been translated before."""
        done, self.out, self.prototypes = (self.out, self.prototypes), [], []
        counting = self._counting()
        for name in PROGRAMS:
            self._program(_renamed(name))
        source = "\n".join([*self.prototypes, *self.out, ""])
        self.out, self.prototypes = done
        return counting + source

    def _counting(self) -> str:
        """For each rule a function that fires and counts it, with the witnesses that are asked before and after."""
        numbers = {name: len(self.rules) + number for number, name in enumerate(WITNESSES)}
        lines, cases = list[str](), list[str]()
        for number, rule in enumerate(self.rules):
            before, after = (self._asked(rule, seen) for seen in (SEEN_BEFORE, SEEN_AFTER))
            lines += [f"static int counted_{rule}(cell *v_state, const int *a, const cell *row) {{"]
            lines += [f"  int refused{', range = out_of_range' * bool(before or after)};"]
            lines += [f"  int seen{numbers[name]} = {asked};" for name, asked in before.items()]
            lines += ["  out_of_range = range;  /* a witness is asked before the guards are */"] * bool(before)
            lines += [f"  if ((refused = {self.fired(rule)})) return refused;"]
            lines += ["  range = out_of_range;"] * bool(after)
            lines += [f"  counts[{numbers[name]}] += {asked};" for name, asked in after.items()]
            lines += ["  out_of_range = range;"] * bool(after)
            lines += [f"  counts[{numbers[name]}] += seen{numbers[name]};" for name in before]
            lines += [f"  counts[{number}]++;", "  return 0;", "}"]
            cases += [f"    case {number}: return counted_{rule}(v_state, a, row);"]
        head = ["static int counted(cell *v_state, int rule, const int *a, const cell *row) {", "  switch (rule) {"]
        witnesses_in_c = "\n".join([*self.prototypes, *self.out])
        self.out, self.prototypes = [], []
        return "\n".join([witnesses_in_c, *lines, *head, *cases, "  }", "  return -9999;", "}", ""])

    def _asked(self, rule: str, seen: Mapping[str, Sequence[Witness]]) -> dict[str, str]:
        """The witnesses of a rule, and the call that asks each."""
        asked = {}
        for witness in seen.get(rule, ()):
            function = _renamed(witness.is_reached.__name__)
            self._program(function)
            asked[witness.name] = f"f_{function}(v_state, r_{rule}, a)"
        return asked

    def _function(self, name: str) -> None:
        if name in functions():
            super()._function(name)
        else:
            self._program(name)

    def _program(self, name: str) -> None:
        if name in self.begun:
            return
        self.begun.add(name)
        tree = self.text[name][0]
        parameters = []
        for p in tree.args.args:
            kind = KINDS.get(ast.unparse(p.annotation) if p.annotation else "")
            if kind is None:
                raise self.refused(p)
            parameters.append(f"{kind}v_{p.arg}")
        if "cell *v_state" not in parameters:
            parameters.insert(0, "cell *v_state")  # a generator fires the rules of its caller's state
        head = f"static int f_{name}({', '.join(parameters)})"
        outer, self._in = (self._in, self._kinds), name
        locals_: dict[str, None] = {}
        self._kinds = {p.partition("v_")[2]: p for p in parameters}
        body = "".join(self.statement(s, locals_) for s in tree.body)
        declared = {"row": "cell v_{}[k_BLOCK_SIZE];", "map": "int v_{}[k_NUM_ENTRIES];", "at": "const cell *v_{};"}
        lines = [declared.get(self._kinds.get(one, ""), "int v_{} = 0;").format(one) for one in locals_]
        self._in, self._kinds = outer
        self.prototypes.append(head + ";")
        self.out.append(f"{head} {{\n  {' '.join(lines)}\n{body}  return 0;\n}}")

    # Statements ----------------------------------------------------------------------------------------------------

    def statement(self, node: ast.stmt, locals_: dict[str, None]) -> str:
        """One statement of a program or witness, else of the text."""
        if self._in in functions():
            return super().statement(node, locals_)
        match node:
            case ast.Return(None):
                return "  return 0;\n"
            case ast.Continue():
                return "  continue;\n"
            case ast.Expr(ast.Yield(ast.IfExp(test, yes, no))):
                return f"  if ({self.number(test)}) {{ {self._fired(yes)} }} else {{ {self._fired(no)} }}\n"
            case ast.Expr(ast.Yield(ast.Tuple() as firing)):
                return f"  {{ {self._fired(firing)} }}\n"
            case ast.Expr(ast.YieldFrom(ast.Call(ast.Name(name), arguments))):
                name = _renamed(name)
                self._program(name)
                values = ", ".join(self._arguments(name, arguments))
                return f"  {{ int stopped = f_{name}({values}); if (stopped) return stopped; }}\n"
            case ast.While(test, body):
                return f"  while ({self._walrus(test, locals_)}) {{\n{self._all(body, locals_)}  }}\n"
            case ast.For(ast.Name(var), ast.Call(ast.Name("range"), bounds), body):
                locals_[var] = None
                start, stop = (["0"] + [self.number(bound) for bound in bounds])[-2:]
                last = f"stop{next(self._number)}"
                head = f"for (int {last} = (v_{var} = {start}, {stop}); v_{var} < {last}; v_{var}++)"
                return f"  {head} {{\n{self._all(body, locals_)}  }}\n"
            case ast.For(ast.Name(var), ast.Name(numbers), body):
                locals_[var] = None
                i = f"i{next(self._number)}"
                head = f"for (int {i} = 0; {i} < v_{numbers}.num; {i}++)"
                return f"  {head} {{\n  v_{var} = v_{numbers}.at[{i}];\n{self._all(body, locals_)}  }}\n"
            case ast.For(ast.Tuple([ast.Name(i), ast.Name(each)]), ast.Call(ast.Name("enumerate"), [field]), body):
                locals_ |= {i: None, each: None}
                place, num = self._place(field)
                head = f"for (v_{i} = 0; v_{i} < {num}; v_{i}++)"
                return f"  {head} {{\n  v_{each} = {place}[v_{i}];\n{self._all(body, locals_)}  }}\n"
            case ast.AnnAssign(ast.Name(name), _, ast.Dict([])):
                locals_[name], self._kinds[name] = None, "map"
                return f"  for (int n = 0; n < k_NUM_ENTRIES; n++) v_{name}[n] = NOT_SET;\n"
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)):
                pairs = zip(names, values, strict=True)
                return "".join(self.statement(ast.Assign([name], value), locals_) for name, value in pairs)
            case ast.Assign([ast.Tuple(names)], ast.Name("arguments") | ast.Subscript(ast.Name("arguments"))):
                used = [name.id for name in names if isinstance(name, ast.Name)]
                locals_ |= dict.fromkeys(used)
                return "".join(f"  v_{name} = v_arguments[{number}];\n" for number, name in enumerate(used))
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("row_of")) as row):
                locals_[name], self._kinds[name] = None, "row"
                return f"  {self._filled(f'v_{name}', row)}\n"
            case ast.Assign([ast.Name(name)], ast.Subscript() as value) if self._is_row(value):
                locals_[name], self._kinds[name] = None, "at"
                return f"  v_{name} = {self.row(value)};\n"
            case ast.If():
                asked, other = self._walrus(node.test, locals_), self._all(node.orelse, locals_)
                return f"  if ({asked}) {{\n{self._all(node.body, locals_)}  }} else {{\n{other}  }}\n"
        return super().statement(node, locals_)

    def _all(self, body: Sequence[ast.stmt], locals_: dict[str, None]) -> str:
        return "".join(self.statement(each, locals_) for each in body)

    def _walrus(self, test: ast.expr, locals_: dict[str, None]) -> str:
        locals_ |= {n.target.id: None for n in ast.walk(test) if isinstance(n, ast.NamedExpr)}
        return self.number(test)

    def _fired(self, firing: ast.expr) -> str:
        """Fire one rule. Its row is copied first, since the rule may write where the row lies."""
        match firing:
            case ast.Tuple([ast.Constant(rule), ast.Tuple(arguments)]) if rule in self.rules:
                numbers, filled, row = [], "", "0"
                for parameter, argument in zip(self.parameters(str(rule)), arguments, strict=True):
                    if is_row(parameter):
                        row = "row"
                        filled = f"cell row[k_BLOCK_SIZE]; {self._filled(row, argument)}"
                    numbers.append("0" if is_row(parameter) else self.number(argument))
                call = f"int a[] = {{{', '.join(numbers)}}}, stopped = counted_{rule}(v_state, a, {row})"
                return f"{filled} {call}; if (stopped) return stopped;"
        raise self.refused(firing)

    def _filled(self, row: str, value: ast.expr) -> str:
        match value:
            case ast.Call(ast.Name("row_of"), [ast.Name(tokens), index, size]):
                return f"row_of({row}, v_{tokens}, {self.number(index)}, {self.number(size)});"
        return f"memcpy({row}, {self.row(value)}, k_BLOCK_SIZE * sizeof(cell));"

    # Expressions ---------------------------------------------------------------------------------------------------

    def _is_row(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(name):
                return self._kinds.get(name, "") in ("row", "at") or self._kinds.get(name, "").startswith("const cell")
            case ast.Subscript(ast.Name()):
                return False
            case ast.Subscript():
                return bool(self._place(node)[1])
        return False

    def number(self, node: ast.expr) -> str:
        """A number or truth value, in the forms of these modules or of the text."""
        match node:
            case ast.NamedExpr(ast.Name(name), value):
                return f"(v_{name} = {self.number(value)})"
            case ast.Subscript(ast.Name("arguments"), index):
                return f"v_arguments[{self.number(index)}]"
            case ast.Compare(left, [ast.In() | ast.NotIn() as operator], [field]):
                row, num = self._place(field)
                sign = ">=" if isinstance(operator, ast.In) else "<"
                return f"(place_in({row}, {num}, {self.number(left)}) {sign} 0)"
            case ast.Compare(left, [ast.Eq()], [right]) if self._is_row(left):
                return f"same({self.row(left)}, {self.row(right)}, k_BLOCK_SIZE)"
            case ast.Call(ast.Attribute(ast.Attribute() as field, "index"), [value]):
                row, num = self._place(field)
                return f"place_in({row}, {num}, {self.number(value)})"
            case ast.Call(ast.Attribute(ast.Name(map), "setdefault"), [key, value]):
                return f"set_default(v_{map}, at({self.number(key)}, k_NUM_ENTRIES), {self.number(value)})"
            case ast.Call(ast.Name("len"), [ast.Name(numbers)]):
                return f"v_{numbers}.num"
            case ast.Call(ast.Name("len"), [field]):
                return self._length(field)
            case ast.Call(ast.Name("bool"), [value]):
                return f"(!!{self.number(value)})"
            case ast.Call(ast.Name("max"), [field]):
                row, num = self._place(field)
                return f"largest({row}, {num})"
            case ast.Call(ast.Name("named"), arguments):
                values = ([self.number(argument) for argument in arguments] + ["0"])[:2]
                return f"v_named->choose(v_named, v_state, {', '.join(values)})"
        return super().number(node)

    def _length(self, field: ast.expr) -> str:
        depth = 0
        while isinstance(field, ast.Subscript):
            field, depth = field.value, depth + 1
        if not isinstance(field, ast.Attribute):
            raise self.refused(field)
        return size_of(REAL_FIELDS[field.attr].domains[depth])

    def _arguments(self, name: str, arguments: list[ast.expr]) -> list[str]:
        if name in functions():
            return super()._arguments(name, arguments)
        parameters = self.text[name][0].args.args
        found = [] if parameters and parameters[0].arg == "state" else ["v_state"]
        for parameter, argument in zip(parameters, arguments, strict=False):
            kind = KINDS[ast.unparse(parameter.annotation) if parameter.annotation else ""]
            if kind == "const cell *":
                found.append(self.row(argument))
            else:
                found.append(self.number(argument) if kind == "int " else f"v_{ast.unparse(argument)}")
        return found + ["0" for _ in parameters[len(arguments) :]]

    def loop(self, loop: ast.comprehension, body: str) -> str:
        """A loop over a domain, a range or a field, with its conditions."""
        match loop.target, loop.iter:
            case ast.Name(var), ast.Call(ast.Name("range"), [stop]):
                return f"for (int v_{var} = 0; v_{var} < {self.number(stop)}; v_{var}++) {{ {body} }}"
            case ast.Name(var), ast.Attribute():
                row, num = self._place(loop.iter)
                i = f"i{next(self._number)}"
                return f"for (int {i} = 0; {i} < {num}; {i}++) {{ int v_{var} = {row}[{i}]; {body} }}"
        return super().loop(loop, body)
