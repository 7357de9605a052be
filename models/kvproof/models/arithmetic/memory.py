"""Bytes: what a block takes, that every layout has room for exactly its blocks, and that no more are made than fit.

A layer of a pool is one piece of memory, seen in two ways: typed, by the axes of its layout, and as planes of rows, one
row for each block, which is what moves. The claim that joins them: an element lies in the row of its block and in no
other. So whoever moves rows moves whole blocks, in every layout.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import z3

from kvproof.impl.kv_layout import CACHE_DTYPES, KVBlockShape, KVLayout
from kvproof.models.arithmetic.sources import Sources, Subject, assigned, non_negative
from kvproof.models.proofs.obligation import Hypothesis, Obligation
from kvproof.models.translation.integer_functions import source_of

TOKENS, LAYERS, HEADS, SIZE, ITEM, BLOCKS = z3.Ints(
    "block_size num_layers num_kv_heads head_size item_bytes num_blocks"
)
SHAPE = Hypothesis("sizes of a block", z3.And([one >= 1 for one in (TOKENS, LAYERS, HEADS, SIZE, ITEM)]))


def obligations(sources: Sources) -> Iterator[Obligation]:
    """All claims about bytes."""
    yield from what_a_block_takes(sources)
    yield from counting_by_axes(sources)
    for layout in KVLayout:
        yield from where_elements_lie(sources, layout)
    yield from how_many_fit(sources)


def bytes_of_block(about: Subject, layers: z3.ArithRef, is_latent: bool) -> z3.ArithRef:
    value: z3.ArithRef = about.function(
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
    about = Subject("bytes of a block", sources, "conservation", SHAPE)
    keys = TOKENS * LAYERS * HEADS * SIZE * ITEM
    yield about.claim("keys and values of every layer", bytes_of_block(about, LAYERS, False) == 2 * keys)
    yield about.claim("a latent cache has keys alone", bytes_of_block(about, LAYERS, True) == keys)
    one_layer = bytes_of_block(about, z3.IntVal(1), False)
    yield about.claim("all layers take as much", bytes_of_block(about, LAYERS, False) == LAYERS * one_layer)
    yield about.claim("it takes at least a byte", bytes_of_block(about, LAYERS, False) >= 1)
    yield from about.well_defined()


def counting_by_axes(sources: Sources) -> Iterator[Obligation]:
    """Two steps for every layout: an element's place among all, one axis more, and its bytes in the row of that."""
    place, length, index, size, row = z3.Ints("place length index size row_number")
    about = Subject("counting axis by axis", sources, "swap-mapping")
    so_far = Hypothesis("so far", z3.And(0 <= place, place < length))
    yield about.claim(
        "one axis more keeps the place within the length",
        z3.And(0 <= place * size + index, place * size + index < length * size),
        so_far,
        Hypothesis("an index of the axis", z3.And(0 <= index, index < size)),
    )
    start = (row * length + place) * ITEM
    yield about.claim(
        "an element's bytes lie in the row of that number and in no other",
        z3.And(row * (length * ITEM) <= start, start + ITEM <= (row + 1) * (length * ITEM)),
        so_far,
        Hypothesis("an element has bytes", ITEM >= 1),
    )


def where_elements_lie(sources: Sources, layout: KVLayout) -> Iterator[Obligation]:
    """Counting elements in the order in which they are stored, axis by axis, the last one fastest."""
    is_latent = layout is KVLayout.LATENT
    one_head = (Hypothesis("a latent cache has one head", HEADS == 1),) if is_latent else ()
    about = Subject(f"layout {layout.name}", sources, "swap-mapping", SHAPE, non_negative(BLOCKS), *one_head)
    sizes = [
        about.expression(
            "KVBlockShape.typed", axis, {"num_blocks": BLOCKS, "tokens": TOKENS, "heads": HEADS, "size": SIZE}
        )
        for axis in axes_of(sources.functions["KVBlockShape.typed"], layout)
    ]
    layer = bytes_of_block(about, z3.IntVal(1), is_latent)
    planes = KVBlockShape(1, 1, 1, CACHE_DTYPES["uint8"], layout).num_planes
    row = about.expression(
        "KVBlockShape.planes",
        assigned(sources.functions["KVBlockShape.planes"], "row_bytes"),
        {"self.bytes_per_layer()": layer, "self.num_planes": planes},
    )
    product: Any = 1
    for size in sizes:
        product = product * size
    yield about.claim("the axes have room for just the bytes of all blocks", product * ITEM == BLOCKS * layer)
    yield about.claim("the rows are the whole of a block", row * planes == layer)

    # The plane and the block number the row; what stands behind them in the typed view is counted within a row.
    num_outer = 2 if layout is KVLayout.TWO_PLANES else 1
    length = z3.IntVal(1)
    for size in sizes[num_outer:]:
        length = length * size
    yield about.claim("a row is as long as the axes that it counts", row == length * ITEM)
    rows = [
        about.expression("KVBlockShape.planes", axis, {"self.num_planes": planes, "num_blocks": BLOCKS})
        for axis in row_axes(sources.functions["KVBlockShape.planes"])
    ]
    plane, block = z3.Ints("plane block")
    stored, row_number = (plane * size + block for size in (sizes[num_outer - 1], rows[1]))
    yield about.claim("both views number the blocks alike", stored == row_number)
    yield about.claim("there are as many planes of rows", rows[0] == planes)
    yield from about.well_defined()


def how_many_fit(sources: Sources) -> Iterator[Obligation]:
    total, share, peak, each, space = z3.Ints("total_bytes share_bytes peak_bytes bytes_per_block swap_space_bytes")
    utilization = z3.Real("utilization")
    about = Subject(
        "blocks that fit",
        sources,
        "conservation",
        Hypothesis("a block has bytes", each >= 1),
        Hypothesis("a share of the whole", z3.And(0 < utilization, utilization <= 1)),
        non_negative(total, peak),
    )
    is_share = Hypothesis("the share in whole bytes", z3.ToReal(share) <= utilization * z3.ToReal(total))
    gpu = about.function(
        "num_gpu_blocks",
        {
            "total_bytes": total,
            "utilization": utilization,
            "peak_bytes": peak,
            "bytes_per_block": each,
            "floor(total_bytes * Fraction(str(utilization)))": share,
        },
    )
    cpu = about.function("num_cpu_blocks", {"swap_space_bytes": space, "bytes_per_block": each})
    some = Hypothesis("some fit", gpu >= 1)
    yield about.claim("on the GPU they fit beside the model into the share", gpu * each + peak <= share, some)
    yield about.claim("and so into the whole memory", gpu * each + peak <= total, some, is_share)
    yield about.claim("on the GPU one more would not fit", (gpu + 1) * each + peak > share)
    yield about.claim(
        "on the host they fit into the space", cpu * each <= space, Hypothesis("some fit on the host", cpu >= 1)
    )
    yield about.claim("on the host one more would not fit", (cpu + 1) * each > space)
    yield about.claim("there are no fewer than none", z3.And(gpu >= 0, cpu >= 0))
    yield from about.well_defined()


def axes_of(function: Callable[..., Any], layout: KVLayout) -> list[ast.expr]:
    """The axes of one layout as its typed view is made, in the order in which they are stored."""
    for node in ast.walk(source_of(function)):
        if isinstance(node, ast.match_case) and ast.unparse(node.pattern) == f"KVLayout.{layout.name}":
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "elements.view":
                    return call.args
    raise LookupError(f"{function.__qualname__} makes no view for {layout.name}: say here where it is made now")


def row_axes(function: Callable[..., Any]) -> list[ast.expr]:
    """The planes and the rows of each, as the view of rows is made."""
    view = assigned(function, "rows")
    if isinstance(view, ast.Call) and len(view.args) == 3:
        return view.args[:2]
    raise LookupError(f"{function.__qualname__} makes no view of planes, rows and words: say here what it makes now")
