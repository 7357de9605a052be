"""The page of the properties: what each one means, and a short run that breaks it.

The runs are the shortest ones of `examples/traces`, which engines have really done. A property that no engine is known
to break has the run of a fault of the catalogue, which is planted, found and shrunk when the page is made.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from docs.generate.property_pictures import picture

from kvproof.check.counterexample.steps import describe_steps
from kvproof.check.faults.catalogue import catalogue
from kvproof.check.faults.judging import Effort, Judging
from kvproof.check.faults.planting import planted
from kvproof.check.search.shrinking import shrink
from kvproof.spec.text.properties import MEANINGS, Meaning

TRACES = Path(__file__).parents[2] / "examples" / "traces"
EFFORT = Effort(walk=20_000, rounds=0)
SHRINK_SECONDS = 10
PLANTED = {
    "cow-copied": "kvproof/parent-writes-without-looking",
    "conservation": "kvproof/block-16-lost",
    "no-leak-at-rest": "kvproof-scheduler/finished-sequence-keeps-its-blocks",
    "eviction-order": "kvproof-pool/pool-finds-evicted-blocks",
    "admission-exact": "kvproof/append-refused-with-enough-blocks",
    "budget-kept": "kvproof-scheduler/tokens-not-spent",
}
HEAD = """# Properties

A property is a sentence that the specification claims, and that a judge checks of a subject. Its id is stable. Under
each one is a picture of what breaks it, and for most of them a short run that does: the last step shows the fault.
The [glossary](../glossary.md#properties) has all of them in one table, and [findings](../findings.md) the faults of
engines in detail.
"""


def page(with_planted: bool = True) -> str:
    """The page in Markdown. with_planted: also make the runs of planted faults, which takes seconds for each."""
    runs = _known_runs()
    if with_planted:
        runs |= {property: _planted_run(id) for property, id in PLANTED.items()}
    return HEAD + "".join("\n".join(_section(id, meaning, runs.get(id))) for id, meaning in MEANINGS.items())


def _section(id: str, meaning: Meaning, run: str | None) -> Iterator[str]:
    yield f"\n## {id}\n"
    yield f"{meaning.sentence}\n\n**If it is broken:** {meaning.consequence}\n"
    yield picture(id)
    if run:
        yield run


def _known_runs() -> dict[str, str]:
    """For each property the run of the trace with the fewest operations."""
    traces = sorted(
        (json.loads(path.read_text(encoding="utf-8")) | {"name": path.name} for path in TRACES.glob("*.json")),
        key=lambda trace: (-len(trace["operations"]), trace["name"]),
    )
    return {
        trace["property"]: _run(
            f"`{trace['subject']}` broke it (`examples/traces/{trace['name']}`)", trace["text"], trace["steps"]
        )
        for trace in traces
    }


def _planted_run(id: str) -> str:
    """The shrunk run that finds a fault of the catalogue. Raises LookupError if it is not found."""
    fault = next(one for one in catalogue() if one.id == id)
    with planted(fault) as make:
        judge = Judging(fault, make, EFFORT)
        if not judge.walk() or judge.counterexample is None:
            raise LookupError(f"{id} is no longer found: name another fault in PLANTED")
        found = shrink(make(), judge.counterexample, SHRINK_SECONDS)
        steps = describe_steps(make, found.config, found.operations)
    return _run(f"A planted fault: {fault.sentence.rstrip('.')}", str(found.finding.text).partition("\n")[0], steps)


def _run(head: str, text: str, steps: list[str]) -> str:
    lines = [f"{number:>2}  {step}" for number, step in enumerate(steps, 1)]
    return "\n".join([f"{head}:", "", "```text", *lines, f"    ✗ {text}", "```", ""])
