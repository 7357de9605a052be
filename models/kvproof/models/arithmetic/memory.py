"""Bytes: the size of a block, that every layout has room for exactly its blocks, and that the blocks made fit.

A layer of a pool is one piece of memory with two views: a typed view, with the axes of its layout, and a view as planes
of rows, with one row for each block. Rows are copied. One claim joins the views: an element lies in the row of its
block and in no other. So copying rows copies whole blocks, in every layout.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Any

import z3

from kvproof.impl.kv_layout import KVLayout
from kvproof.models.arithmetic.sources import Sources, Subject, assigned, non_negative
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.translation.integer_functions import source_of

TOKENS, LAYERS, HEADS, SIZE, ITEM, BLOCKS = z3.Ints(
    "block_size num_layers num_kv_heads head_size item_bytes num_blocks"
)
SHAPE = Hypothesis("sizes of a block", z3.And([one >= 1 for one in (TOKENS, LAYERS, HEADS, SIZE, ITEM)]))


def obligations(sources: Sources) -> Iterator[Obligation]:
    yield from what_a_block_takes(sources)
    yield from counting_by_axes(sources)
    for layout in KVLayout:
        yield from where_elements_lie(sources, layout)
    yield from how_many_fit(sources)


def bytes_of_block(subject: Subject, layers: z3.ArithRef, is_latent: bool) -> z3.ArithRef:
    value: z3.ArithRef = subject.function(
        "block_bytes",
        {
            "block_size": TOKENS,
            "num_layers": layers,
            "num_kv_heads": HEADS,
            "head_size": SIZE,
            "latent": z3.BoolVal(is_latent),
            "cache_dtype(dtype, model_dtype).itemsize": ITEM,
        },
    )
    return value


def what_a_block_takes(sources: Sources) -> Iterator[Obligation]:
    subject = Subject("bytes of a block", sources, "conservation", SHAPE)
    keys = TOKENS * LAYERS * HEADS * SIZE * ITEM
    yield subject.claim("keys and values of every layer", bytes_of_block(subject, LAYERS, False) == 2 * keys)
    yield subject.claim("a latent cache has keys alone", bytes_of_block(subject, LAYERS, True) == keys)
    one_layer = bytes_of_block(subject, z3.IntVal(1), False)
    yield subject.claim("all layers take as much", bytes_of_block(subject, LAYERS, False) == LAYERS * one_layer)
    yield subject.claim("it takes at least a byte", bytes_of_block(subject, LAYERS, False) >= 1)
    yield from subject.well_defined()


def counting_by_axes(sources: Sources) -> Iterator[Obligation]:
    """The two steps that every layout uses: adding an axis to an element's index, and the bytes of an element."""
    place, length, index, size, row = z3.Ints("place length index size row_number")
    subject = Subject("counting axis by axis", sources, "swap-mapping")
    so_far = Hypothesis("so far", z3.And(0 <= place, place < length))
    yield subject.claim(
        "one axis more keeps the place within the length",
        z3.And(0 <= place * size + index, place * size + index < length * size),
        so_far,
        Hypothesis("an index of the axis", z3.And(0 <= index, index < size)),
    )
    start = (row * length + place) * ITEM
    yield subject.claim(
        "an element's bytes lie in the row of that number and in no other",
        z3.And(row * (length * ITEM) <= start, start + ITEM <= (row + 1) * (length * ITEM)),
        so_far,
        Hypothesis("an element has bytes", ITEM >= 1),
    )


def where_elements_lie(sources: Sources, layout: KVLayout) -> Iterator[Obligation]:
    """The index of an element in the order of storage, axis by axis; the last axis varies fastest."""
    is_latent = layout is KVLayout.LATENT
    one_head = (Hypothesis("a latent cache has one head", HEADS == 1),) if is_latent else ()
    subject = Subject(f"layout {layout.name}", sources, "swap-mapping", SHAPE, non_negative(BLOCKS), *one_head)
    sizes = [
        subject.expression(
            "KVBlockShape.typed", axis, {"num_blocks": BLOCKS, "tokens": TOKENS, "heads": HEADS, "size": SIZE}
        )
        for axis in axes_of(sources.functions["KVBlockShape.typed"], layout)
    ]
    layer = bytes_of_block(subject, z3.IntVal(1), is_latent)
    planes = layout.num_planes
    row = subject.expression(
        "KVBlockShape.planes",
        assigned(sources.functions["KVBlockShape.planes"], "row_bytes"),
        {"self.bytes_per_layer()": layer, "self.num_planes": planes},
    )
    product: Any = 1
    for size in sizes:
        product = product * size
    yield subject.claim("the axes have room for just the bytes of all blocks", product * ITEM == BLOCKS * layer)
    yield subject.claim("the rows are the whole of a block", row * planes == layer)

    # The plane and the block number the row; what stands behind them in the typed view is counted within a row.
    num_outer = 2 if layout is KVLayout.TWO_PLANES else 1
    length = z3.IntVal(1)
    for size in sizes[num_outer:]:
        length = length * size
    yield subject.claim("a row is as long as the axes that it counts", row == length * ITEM)
    rows = [
        subject.expression("KVBlockShape.planes", axis, {"self.num_planes": planes, "num_blocks": BLOCKS})
        for axis in row_axes(sources.functions["KVBlockShape.planes"])
    ]
    plane, block = z3.Ints("plane block")
    stored, row_number = (plane * size + block for size in (sizes[num_outer - 1], rows[1]))
    yield subject.claim("both views number the blocks alike", stored == row_number)
    yield subject.claim("there are as many planes of rows", rows[0] == planes)
    yield from subject.well_defined()


def how_many_fit(sources: Sources) -> Iterator[Obligation]:
    total, share, peak, each, space = z3.Ints("total_bytes share_bytes peak_bytes bytes_per_block swap_space_bytes")
    utilization = z3.Real("utilization")
    subject = Subject(
        "blocks that fit",
        sources,
        "conservation",
        Hypothesis("a block has bytes", each >= 1),
        Hypothesis("a share of the whole", z3.And(0 < utilization, utilization <= 1)),
        non_negative(total, peak),
    )
    is_share = Hypothesis("the share in whole bytes", z3.ToReal(share) <= utilization * z3.ToReal(total))
    gpu = subject.function(
        "num_gpu_blocks",
        {
            "total_bytes": total,
            "utilization": utilization,
            "peak_bytes": peak,
            "bytes_per_block": each,
            "floor(total_bytes * Fraction(str(utilization)))": share,
        },
    )
    cpu = subject.function("num_cpu_blocks", {"swap_space_bytes": space, "bytes_per_block": each})
    some = Hypothesis("some fit", gpu >= 1)
    yield subject.claim("on the GPU they fit beside the model into the share", gpu * each + peak <= share, some)
    yield subject.claim("and so into the whole memory", gpu * each + peak <= total, some, is_share)
    yield subject.claim("on the GPU one more would not fit", (gpu + 1) * each + peak > share)
    yield subject.claim(
        "on the host they fit into the space", cpu * each <= space, Hypothesis("some fit on the host", cpu >= 1)
    )
    yield subject.claim("on the host one more would not fit", (cpu + 1) * each > space)
    yield subject.claim("there are no fewer than none", z3.And(gpu >= 0, cpu >= 0))
    yield from subject.well_defined()


def axes_of(function: Callable[..., Any], layout: KVLayout) -> list[ast.expr]:
    """The axes of the typed view of a layout, in the order of storage. Raises LookupError if there is no such view."""
    for node in ast.walk(source_of(function)):
        if isinstance(node, ast.match_case) and ast.unparse(node.pattern) == f"KVLayout.{layout.name}":
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "elements.view":
                    return call.args
    raise LookupError(f"{function.__qualname__} makes no view for {layout.name}; adapt this function to the code")


def row_axes(function: Callable[..., Any]) -> list[ast.expr]:
    """The numbers of planes and of rows in the view of rows. Raises LookupError if there is no such view."""
    view = assigned(function, "rows")
    if isinstance(view, ast.Call) and len(view.args) == 3:
        return view.args[:2]
    raise LookupError(f"{function.__qualname__} makes no view of rows; adapt this function to the code")
