"""The tables of runs of `make gpu`, from their committed documents: `python -m docs.generate.gpu` writes the page.

With a folder of such documents, it prints the tables of this one run.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUNS_OF_GPUS = Path(__file__).resolve().parents[1] / "gpu"
PAGE = RUNS_OF_GPUS / "tables.md"
MACHINES = {"h200": "An H200", "h200-second-host": "An H200 of another host", "h100": "An H100"}
HEAD = """# Tables of the runs on GPUs

[GPUs on which the data plane ran](../gpu.md) says what these tables show. They are made from the result documents in
`docs/gpu/` (`python -m docs.generate.gpu` writes this page). Speeds are GB/s of payload, and in brackets the ratio to a
plain copy of as many bytes in the same direction and round (`cudaMemcpyAsync` from or to pinned memory, or on the
device). `engine` is kvproof's, `index-copy` gathers and scatters with torch, `block-copy` copies block by block.
"""
KINDS = ("bytes", "race", "mapping", "end to end")
RUNS = {"device-1": "all layouts and types", "device-2": "the same, another seed", "kernels": "kernels of engines"}
DIRECTIONS = ("swap in", "swap out", "copy")
EXECUTORS = "engine", "vllm", "sglang", "index-copy", "block-copy"
MOVER = "benchmarks/gpu_movers.py:move"  # if nothing is planted into it, it is the engine
BREAKING = {
    "wrong-byte": "two targets exchanged",
    "out-of-bounds": "a kernel that writes outside of all memory",
    "endless": "a kernel that does not end",
}
PLANTED = {"unchanged": "nothing, another seed", "slower": "a quarter of the copies made twice"}


def page() -> str:
    """The page with the tables of every machine."""
    parts = [f"\n## {title}\n\n{tables(RUNS_OF_GPUS / name)}" for name, title in MACHINES.items()]
    return HEAD + "".join(parts)


def tables(folder: Path) -> str:
    """The tables in Markdown. folder: of the documents of one machine; a table without its document is left out."""
    makers = (
        ("device-1", _bytes),
        ("kernels", _kernels),
        ("speeds", _block_sizes),
        ("speeds", _comparison),
        ("regressions-baseline", _regressions),
        ("breaking-endless", _breaking),
    )
    parts = (make(folder) for document, make in makers if _has(folder, document))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _has(folder: Path, name: str) -> bool:
    return (folder / f"{name}.json").exists()


def _read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


def _bytes(folder: Path) -> Iterator[str]:
    yield "| run | cases | pairs moved | bytes compared | wrong | planted faults caught | tokens generated | differ |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, what in RUNS.items():
        if not _has(folder, name):
            continue
        plane = _read(folder, name)["data_plane"]
        cases = [case for case in plane["cases"] if case["status"] != "skipped"]
        wrong = sum(case["status"] == "failed" for case in cases)
        pairs, proven = (sum(case[key] for case in cases) for key in ("num_pairs", "bytes_proven"))
        faults = plane["faults"]
        caught = f"{sum(fault['is_caught'] for fault in faults)} of {len(faults)}"
        tokens = sum(storm["num_tokens"] for storm in plane["storms"])
        differ = sum(len(storm["differences"]) for storm in plane["storms"])
        row = (what, f"{len(cases):,}", f"{pairs:,}", f"{proven:,}", wrong, caught, f"{tokens:,}", differ)
        yield f"| {' | '.join(map(str, row))} |"


def _kernels(folder: Path) -> Iterator[str]:
    speeds = {
        (speed["mapping"], speed["name"]): speed
        for name in ("regressions-baseline", "device-1", "kernels")
        if _has(folder, name) and (measured := _read(folder, name)["data_plane"]["bandwidth"])
        for speed in measured["moves"]
    }
    speeds = {(mapping, "engine"): speed for (mapping, name), speed in speeds.items() if name == MOVER} | speeds
    names = [name for name in EXECUTORS if any(name == one for _, one in speeds)]
    yield f"| move, 256 blocks of 512 KiB | {' | '.join(names)} |"
    yield f"|---|{'---:|' * len(names)}"
    for mapping in dict.fromkeys(mapping for mapping, _ in speeds):
        cells = [_cell(speeds[mapping, name]) for name in names]
        yield f"| {mapping} | {' | '.join(cells)} |"


def _cell(speed: Any) -> str:
    return f"{speed['gb_per_second']['median']:,.1f} ({speed['ratio']['median']:.2f})"


def _block_sizes(folder: Path) -> Iterator[str]:
    rows = _read(folder, "speeds")["moves"]
    sizes = list(dict.fromkeys(row["block bytes"] for row in rows))
    yield f"| move | executor | {' | '.join(f'{size // 1024:,} KiB' for size in sizes)} |"
    yield f"|---|---|{'---:|' * len(sizes)}"
    for key in dict.fromkeys((row["mapping"], row["executor"]) for row in rows):
        mine = [row for row in rows if (row["mapping"], row["executor"]) == key]
        cells = [f"{row['GB/s']:,.1f} ({row['ratio to a plain copy']:.2f})" for row in mine]
        yield f"| {key[0]} | {key[1]} | {' | '.join(cells)} |"


def _comparison(folder: Path) -> Iterator[str]:
    found = _read(folder, "speeds")["comparison"]
    yield "| comparing 4 GiB with their pattern | a plain read of them | ratio |"
    yield "|---:|---:|---:|"
    yield f"| {found['compare']:,.0f} GB/s | {found['read']:,.0f} GB/s | {found['compare / read']:.2f} |"


def _regressions(folder: Path) -> Iterator[str]:
    mappings = [f"{name}, {order}" for name in DIRECTIONS for order in ("in a row", "scattered")]
    yield f"| planted | {' | '.join(mappings)} |"
    yield f"|---|{'---:|' * len(mappings)}"
    for name, planted in PLANTED.items():
        compared = {one["mapping"]: one for one in _read(folder, f"regressions-{name}")["data_plane"]["comparisons"]}
        cells = [
            f"{100 * one['change']:+.1f} %, {'worse' if one['is_worse'] else 'noise'}"
            for one in (compared[mapping] for mapping in mappings)
        ]
        yield f"| {planted} | {' | '.join(cells)} |"


def _breaking(folder: Path) -> Iterator[str]:
    yield "| planted | refuted | unknown | not refuted | the finding |"
    yield "|---|---:|---:|---:|---|"
    for name, planted in BREAKING.items():
        checks = _read(folder, f"breaking-{name}")["checks"]
        counts = [
            sum(check["verdict"] == verdict for check in checks) for verdict in ("refuted", "unknown", "not refuted")
        ]
        (text,) = (check["text"] for check in checks if check["verdict"] == "refuted")
        yield f"| {planted} | {' | '.join(map(str, counts))} | {text.rpartition('seed 1: ')[2] or text} |"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(tables(Path(sys.argv[1])), end="")
    else:
        PAGE.write_text(page(), encoding="utf-8")
