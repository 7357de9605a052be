"""The canonical form of a state in C, generated from the declarations of the fields: `encode` and `decode`.

No rule prefers one sequence, block of a pool, flight or token value to another, so states that a renaming of these
turns into each other are the same. Which fields they index and which cells name them is in the declarations. `encode`
sets cells without a meaning (`meaning`) to their first value, sorts the sequences by what does not depend on names,
tries every order of those that are left equal, names blocks and identities by first occurrence, and takes the least
string of bytes. `decode` gives the state back, with names in the order of the string; `fill` gives cells without a
meaning the value of the first state, or another one.

It is sound whatever the order: each string is an image of the state under some renaming, and strings are compared byte
by byte, so different states are never taken for one. Two strings for one state would only cost time.

Identities are numbers within one state. After the cells come the number of identities and, for each, the identity of
the position before it; 0 is the identity before the first position. In the string a code of one byte stands for a cell;
`packing.c` says how codes are kept.
"""

import ast
import re
from collections.abc import Set
from pathlib import Path
from string import Template

from kvproof.spec.c_reader import meaning
from kvproof.spec.c_reader.translation import REAL_FIELDS, CTranslator, Unreadable, size_of
from kvproof.spec.language import BLOCKS, ENTRIES, FLIGHTS, IDENTITIES, POOLS, SEQS, Domain, Field
from kvproof.spec.syntax_trees import Functions, fields_in, functions_of
from kvproof.spec.text.state import NONE

NAMED = {SEQS: "seq", BLOCKS: "block", FLIGHTS: "flight"}  # the ids that a renaming may exchange
BLOCK_CLASS = "pool_of"  # what a renaming of blocks keeps
VALUES = {ENTRIES: "block", BLOCKS: "block", FLIGHTS: "flight", IDENTITIES: "identity"}  # what a cell may name
SOURCE = Path(__file__).with_suffix(".c")
PACKING = SOURCE.with_name("packing.c")
NUM_IDS_MAX = 250  # identities of one state; names and numbers are bytes
IDS_MAX = 64  # sequences, blocks or flights
STREAM_MAX = 8192  # codes of a state, before they are packed


def meanings(translator: CTranslator) -> str:
    """The functions of `meaning` in C, under the names m_FIELD."""
    found = functions_of([meaning])
    unknown = found.keys() - REAL_FIELDS.keys()
    if unknown:
        raise Unreadable(f"there is no field {', '.join(sorted(unknown))}")
    for name, (function, _) in found.items():
        if read := _fields_read(function, found.keys() - {name}, translator.text):
            raise Unreadable(f"the meaning of {name} depends on {', '.join(sorted(read))}, which may have none")
    own = CTranslator({**translator.text, **{f"m_{name}": function for name, function in found.items()}})
    own.require(f"m_{name}" for name in found)
    mine = [line for line in own.prototypes + own.out if "f_m_" in line]
    others = [name for name in own.begun if name not in translator.begun and not name.startswith("m_")]
    if others:
        raise Unreadable(f"no rule or claim reads {', '.join(others)}")
    return "\n".join([*mine, ""]).replace("f_m_", "m_")


def _fields_read(function: ast.FunctionDef, fields: Set[str], text: Functions) -> set[str]:
    """Those of the fields that a function reads, itself or through functions that it calls."""
    called = {one.id for one in ast.walk(function) if isinstance(one, ast.Name)} & text.keys()
    inner = (_fields_read(text[name][0], fields, text) for name in called)
    return fields_in(function, fields).union(*inner)


def canonical_form(translator: CTranslator) -> str:
    """The source of `erase`, `encode` and `decode`."""
    for field in REAL_FIELDS.values():
        if field.to in NAMED and field.to not in VALUES:
            raise Unreadable(f"a cell that names a {field.to.name} cannot be renamed yet")
    parts = {"ERASE": "\n".join(_erased(name) for name in functions_of([meaning]))}
    parts["FILL"] = "\n".join(_filled(name) for name in functions_of([meaning]))
    for sort, var in NAMED.items():
        only = {name: f for name, f in REAL_FIELDS.items() if _sorts(f) == [sort]}
        upper = var.upper()
        numbers = {name: f for name, f in only.items() if VALUES.get(f.to) is None and f.domains == (sort,)}
        if sort is SEQS:  # the numbers come first: their codes are made once for all orders
            parts["NUM_SEQ_NUMBERS"] = str(len(numbers))
            parts["SEQ_NUMBERS"] = _all(numbers, {sort: var}, _emitted)
            parts["SEQ_NUMBERS_TAKE"] = _all(numbers, {sort: var}, _taken)
            coded = {name: f for name, f in only.items() if name not in numbers}
        else:
            coded = only
            parts[f"{upper}_NUMBERS"] = _all(only, {sort: var}, _marked_number)
        parts[f"{upper}_EMIT"] = _all(coded, {sort: var}, _emitted)
        parts[f"{upper}_TAKE"] = _all(coded, {sort: var}, _taken)
        parts[f"{upper}_PLAIN"] = _all(
            {name: f for name, f in REAL_FIELDS.items() if sort in f.domains},
            {sort: var},
            lambda f, cell: f"if ({cell} != first[&{cell} - s]) return 0;",
        )
        parts[f"{upper}_SAME"] = _all(
            {name: f for name, f in REAL_FIELDS.items() if sort in f.domains},
            {sort: var},
            lambda f, cell: f"if ({cell} != {_of_other(cell)}) return 0;",
        )
        for value in ("block", "identity"):
            some = {name: f for name, f in only.items() if VALUES.get(f.to) == value}
            parts[f"{upper}_{value.upper()}S"] = _all(some, {sort: var}, lambda f, cell: f"EACH({cell});")
    crossed = {name: f for name, f in REAL_FIELDS.items() if _sorts(f) == [SEQS, BLOCKS]}
    rest = {name: f for name, f in REAL_FIELDS.items() if not _sorts(f)}
    left = {name for name, f in REAL_FIELDS.items() if len(_sorts(f)) > 1} - crossed.keys()
    if left:
        raise Unreadable(f"the fields {', '.join(sorted(left))} have more than one kind of ids that can be renamed")
    flights = {name: f for name, f in REAL_FIELDS.items() if _sorts(f) == [FLIGHTS]}
    if any(f.domains != (FLIGHTS,) for f in flights.values()):
        raise Unreadable("flights cannot be sorted by rows yet")
    parts["NUM_FLIGHT_CODES"] = str(len(flights))
    parts["PACKING"] = PACKING.read_text()
    parts["CROSSED_EMIT"] = _all(crossed, {SEQS: "seq", BLOCKS: "block"}, _emitted)
    parts["CROSSED_TAKE"] = _all(crossed, {SEQS: "seq", BLOCKS: "block"}, _taken)
    parts["REST_EMIT"] = _all(rest, {}, _emitted)
    parts["REST_TAKE"] = _all(rest, {}, _taken)
    source = Template(SOURCE.read_text()).substitute(
        parts, NUM_IDS_MAX=NUM_IDS_MAX, IDS_MAX=IDS_MAX, STREAM_MAX=STREAM_MAX, CLASS=f"f_{BLOCK_CLASS}"
    )
    return meanings(translator) + source


def _sorts(field: Field) -> list[Domain]:
    return [domain for domain in field.domains if domain in NAMED]


def _cell(name: str, ids: list[str]) -> str:
    domains = REAL_FIELDS[name].domains
    place = f"o_{name}"
    for number, one in enumerate(ids):
        place += f" + {one}" + "".join(f" * {size_of(domain)}" for domain in domains[number + 1 :])
    return f"s[{place}]"


def _loops(name: str, fixed: dict[Domain, str], body: str, ids: list[str]) -> str:
    for domain, one in reversed(list(zip(REAL_FIELDS[name].domains, ids, strict=True))):
        if domain not in fixed:
            body = f"for (int {one} = 0; {one} < {size_of(domain)}; {one}++) {{ {body} }}"
    return body


def _all(fields, fixed, each) -> str:  # type: ignore[no-untyped-def]
    lines = []
    for name, field in fields.items():
        ids = [fixed.get(domain, f"i{number}") for number, domain in enumerate(field.domains)]
        lines.append(_loops(name, fixed, each(field, _cell(name, ids)), ids))
    return "\n  ".join(lines)


def _erased(name: str) -> str:
    field = REAL_FIELDS[name]
    ids = [f"i{number}" for number in range(len(field.domains))]
    cell = _cell(name, ids)
    body = f"clean{cell[1:]} = m_{name}(s, {', '.join(ids)}) ? {cell} : {_start(field)};"
    return "  " + _loops(name, {}, body, ids)


def _filled(name: str) -> str:
    field = REAL_FIELDS[name]
    ids = [f"i{number}" for number in range(len(field.domains))]
    cell = _cell(name, ids)
    as_first = f"initial{cell[1:]}"
    place = cell.partition(" + ")[2].removesuffix("]")
    in_sequence = " + ".join(place.split(" + ")[1:]) or "0" if field.domains[0] is SEQS else place
    other = (
        f"1 - {as_first}" if field.to is POOLS else f"other_number(s, by_sequence ? {in_sequence} : {place}, is_other)"
    )
    body = f"if (!m_{name}(s, {', '.join(ids)})) {cell} = is_other ? {other} : {as_first};"
    return "  " + _loops(name, {}, body, ids)


def _of_other(cell: str) -> str:
    return re.sub(r"\b(seq|block|flight)\b", "other", cell)


def _start(field: Field) -> int:
    """What a cell without a meaning is set to; no name of a block."""
    return NONE if VALUES.get(field.to) in ("block", "flight") else 0 if callable(field.start) else int(field.start)


def _emitted(field: Field, cell: str) -> str:
    kind = VALUES.get(field.to)
    if kind is None:
        return f"EMIT(number_code(&bits, {cell} - ({0 if callable(field.start) else int(field.start)})));"
    return f"EMIT({kind}_code(f, {cell}));"


def _taken(field: Field, cell: str) -> str:
    kind = VALUES.get(field.to)
    if kind is None:
        return f"{cell} = (int8_t)TAKE() + ({0 if callable(field.start) else int(field.start)});"
    return f"{cell} = {kind}_of(f, TAKE());"


def _marked_number(field: Field, cell: str) -> str:
    match VALUES.get(field.to):
        case None:
            return f"h = mix(h, {cell});"
        case "flight":
            return f"h = mix(h, {cell} != k_NONE);"
    return ""
