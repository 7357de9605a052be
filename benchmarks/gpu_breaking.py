"""Let an executor be wrong or break the GPU, and look whether `kvproof device` says so, ends, and passes nothing else.

    python3 -m benchmarks.gpu_breaking --out DIR

The subject is `benchmarks/gpu_movers.py:move`, three times at once, in processes of their own: with two targets
exchanged; with a kernel that writes outside of all memory, after which every later call of the process fails; with a
kernel that does not end, and cannot be interrupted. Each run must end with 1 and name what happened, and if the device
broke, what could not be run must stay *unknown*.

Exit code 0: every run ended as it must. 1: one did not; its line says how.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu_regressions import Planted, run

REFUTED, UNKNOWN = "refuted", "unknown"


@dataclass(frozen=True)
class Breaking:
    """A run that must be refuted. says: what its findings and notes must name. is_broken: the device broke."""

    run: Planted
    says: str
    is_broken: bool = True


BREAKING = (
    Breaking(Planted("wrong-byte", "wrong", 1, 1), "it must hold the key of block", is_broken=False),
    Breaking(Planted("out-of-bounds", "outside", 1, 1), "illegal memory access"),
    Breaking(Planted("endless", "endless", 1, 1), "its work has not ended"),
)


def complaint(one: Breaking, code: int, document: Path) -> str:
    """What is wrong with how a run ended; empty if nothing is."""
    if code != one.run.wanted:
        return f"exit code {code}, {one.run.wanted} wanted"
    try:
        result = json.loads(document.read_text())
        notes, checks = result["data_plane"]["notes"], result["checks"]
        named = [check["text"] for check in checks] + notes
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its result cannot be read: {error}"
    if not any(one.says in text for text in named):
        return f"nothing says {one.says!r}: {'; '.join(named)}"
    if not one.is_broken:
        return ""
    if not any("no more cases could be run" in note for note in notes):
        return f"no note says that the device broke: {'; '.join(notes)}"
    passed = [check["id"] for check in checks if check["verdict"] not in (REFUTED, UNKNOWN, "unsupported")]
    return f"not refuted, on a broken device: {', '.join(passed)}" if passed else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu_breaking", description="A broken device.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        codes = list(pool.map(lambda one: run(one.run, "cuda", asked.out, None), BREAKING))
    wrong = 0
    for one, code in zip(BREAKING, codes, strict=True):
        text = complaint(one, code, asked.out / f"{one.run.name}.json")
        wrong += bool(text)
        print(f"{one.run.name}: {text or f'exit code {code}, and it is named'}", flush=True)
    print(f"{len(BREAKING) - wrong} of {len(BREAKING)} runs ended as they must")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
