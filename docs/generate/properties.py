"""The page of the properties: what each one means, and a short run that breaks it.

The runs are the shortest ones of `examples/traces`, which engines have really done. A property that no engine is known
to break has the run of a fault of the catalogue, which is planted, found and shrunk when the page is made; or that of a
subject of `broken`, or of a rule of `broken_rules`, which is done when the page is made. So every property has a run,
and a run that refutes nothing any more, or another property, ends the build.
"""

import json
from collections.abc import Iterator, Sequence
from inspect import getsource
from pathlib import Path

from docs.generate.broken import BROKEN, EXCLUSIVE_WRITER, Broken, Replayed
from docs.generate.broken_rules import BROKEN_RULES, broken_steps
from docs.generate.property_pictures import picture

from kvproof.audit.faults.catalogue import catalogue
from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.judging import Judging, JudgingEffort
from kvproof.audit.faults.planting import planted
from kvproof.check.counterexample.steps import describe_steps, steps_of
from kvproof.check.oracle.replay import replay
from kvproof.check.protocol.finding import Finding
from kvproof.check.search.shrinking import shrink
from kvproof.spec.text.properties import MEANINGS, Meaning

TRACES = Path(__file__).parents[2] / "examples" / "traces"
EFFORT = JudgingEffort(walk=20_000, rounds=0)
SHRINK_SECONDS = 10
PLANTED = {
    "cow-copied": "kvproof/parent-writes-without-looking",
    "preempted-as-set": "kvproof-scheduler/lone-sequence-swapped-in-any-mode",
    "eviction-order": "kvproof-pool/pool-finds-evicted-blocks",
    "one-writer": "kvproof-store/store-gives-a-new-slot-to-a-known-key",
    "abort-unseen": "kvproof-store/store-keeps-a-failed-key",
}
HEAD = """# Properties

A property is a sentence that the specification claims, and that a judge checks of a subject. Its id is stable. Under
each one is a picture of what breaks it, and a short run that does: the last step shows the fault.
[My run is red](../red.md) has all of them in one table with their usual causes, [findings](../findings.md) the faults
of engines in detail.
"""


def page(with_planted: bool = True) -> str:
    """The page in Markdown. with_planted: also make the runs of planted faults, which takes seconds for each."""
    runs = _known_runs()
    runs |= {property: _broken_run(property, one) for property, one in BROKEN.items()}
    runs |= {one.id: _broken_rule(one) for one in BROKEN_RULES}
    if with_planted:
        runs |= {property: _planted_run(id) for property, id in PLANTED.items()}
        runs["exclusive-writer"] = _replayed_run("exclusive-writer", EXCLUSIVE_WRITER)
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
    fault = _fault(id)
    with planted(fault) as make:
        judge = Judging(fault, make, EFFORT)
        if not judge.walk() or judge.counterexample is None:
            raise LookupError(f"{id} is no longer found: name another fault in PLANTED")
        found = shrink(make(), judge.counterexample, SHRINK_SECONDS)
        steps = describe_steps(make, found.config, found.operations)
    return _run(_head_of(fault), _first_line(found.finding), steps)


def _replayed_run(property: str, known: Replayed) -> str:
    """A known run on a fault of the catalogue. Raises LookupError if it does not refute the property."""
    fault = _fault(known.fault)
    with planted(fault) as make:
        done = replay(make, known.config, known.operations)
    if done.finding is None or done.finding.property != property:
        raise LookupError(f"{known.fault}: the run for {property} refutes {done.finding}")
    return _run(_head_of(fault), _first_line(done.finding), steps_of(done, known.config, known.operations))


def _broken_run(property: str, broken: Broken) -> str:
    """The source of a broken subject and its run. Raises LookupError if it does not refute the property."""
    done, text = broken.outcome(property)
    code = getsource(broken.make).rstrip()
    head = f"A subject that is broken on purpose:\n\n```python\n{code}\n```\n\nIts run"
    return _run(head, text, steps_of(done, broken.config, broken.operations))


def _broken_rule(rule: Fault) -> str:
    """A changed line of the specification, and what follows."""
    *steps, text = broken_steps(rule)
    (edit,) = rule.plant
    return (
        f"No judge reports this property of a subject: {rule.sentence}. It is proved of the specification "
        "([proofs](../proofs.md#stores-of-several-tiers)). "
    ) + _run(f"A rule that breaks it: in `{edit.function}`, `{edit.old}` becomes `{edit.new}`", text, steps)


def _fault(id: str) -> Fault:
    return next(one for one in catalogue() if one.id == id)


def _head_of(fault: Fault) -> str:
    return f"A planted fault: {fault.sentence.rstrip('.')}"


def _first_line(finding: Finding) -> str:
    return str(finding.text).partition("\n")[0]


def _run(head: str, text: str, steps: Sequence[str]) -> str:
    lines = [f"{number:>2}  {step}" for number, step in enumerate(steps, 1)]
    return "\n".join([f"{head}:", "", "```text", *lines, f"    ✗ {text}", "```", ""])
