"""The page of findings, which `python -m docs.generate.findings` writes, and a page for each record of the corpus.

The page answers first whether a release is affected; then it has the scores, which `kvproof corpus run` wrote.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.hunting.corpus.record import CLASSES, FaultRecord, read_all
from kvproof.check.hunting.corpus.score import FOUND, MISSED, NOT_HUNTED
from kvproof.check.hunting.corpus.score_document import read_score
from kvproof.check.runs.effort import effort_of
from kvproof.check.subjects.loading.download import order_of

TREE = Path(__file__).resolve().parents[2]
PAGE, RECORDS = TREE / "docs" / "findings.md", TREE / "examples" / "corpus"
SCORES = {"kvproof": RECORDS / "score.json", "naive fuzzer": RECORDS / "score-naive-fuzzer.json"}
HEAD = """# Faults found in real engines

This page is made from the records of [the corpus](corpus.md): `python -m docs.generate.findings` writes it. Each fault
has a file in `examples/corpus/`, which says where it is, how it happens and how to see it.

```sh
kvproof corpus list --affects vllm==0.31.0     # is this release affected?
kvproof corpus list --affects vllm==0.24.0 --class prefix-keys    # by wrong hits of adapters, images or salts?
kvproof corpus show F20                        # all that is known of a fault
kvproof corpus reproduce F20                   # shown in a bad release, and not in a good one
```

## Is my release affected?

*Shown in* has the oldest and the newest release in which a run has shown the fault, *gone in* the oldest release after
it in which the same run has not. Releases that were not run are not named; `kvproof bisect` runs them.
"""
SCORE_HEAD = """
## What a hunt finds

`kvproof corpus run` hunts each fault in its newest bad release, from an empty store. A fault is found if more than half
of the seeds see it. Faults that nothing drives are counted as missed. The naive fuzzer is `examples/naive_fuzzer.py`;
[the corpus](corpus.md) says how to score another tool. The scores below: {settings}.

"""


def page(faults: list[FaultRecord], scores: dict[str, dict[str, Any]]) -> str:
    """The page of findings. scores: the documents of `kvproof corpus run`, by tool."""
    lines = [HEAD]
    for engine in dict.fromkeys(sorted((one.engine for one in faults), key=lambda name: ("/" in name, name))):
        lines += [
            f"\n### {engine}\n\n",
            "| fault | shown in | gone in | what a user sees | state |\n",
            "|---|---|---|---|---|\n",
        ]
        lines += [_row(one) for one in sorted(faults, key=_newest_first) if one.engine == engine]
    return "".join([*lines, *_scores(faults, scores)])


def _newest_first(fault: FaultRecord) -> tuple[Any, ...]:
    newest = order_of(fault.bad[-1]) if fault.has_releases else []
    return bool(fault.gone_in), [(-is_number, -number, word) for is_number, number, word in newest], fault.id


def _row(fault: FaultRecord) -> str:
    name = f"{fault.alias}: {fault.id}" if fault.alias else fault.id
    gone = fault.gone_in or "–"
    state = ", ".join([fault.state, *map(_link, fault.links)])
    cells = f"[{name}](../examples/corpus/{fault.id}.toml)", fault.releases, gone, _cell(fault.harm), state
    return f"| {' | '.join(cells)} |\n"


def _link(text: str) -> str:
    """An issue or pull request; GitHub leads from one to the other."""
    repository, _, number = text.partition("#")
    return f"[{text}](https://github.com/{repository}/issues/{number})"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _scores(faults: list[FaultRecord], scores: dict[str, dict[str, Any]]) -> Iterator[str]:
    if not scores:
        return
    seeds = {name: ", ".join(map(str, document["seeds"])) for name, document in scores.items()}
    settings = "; ".join(f"{name}: effort {scores[name]['effort']}, seeds {seeds[name]}" for name in scores)
    yield SCORE_HEAD.format(settings=settings)
    yield f"| class | faults | {' | '.join(scores)} |\n|---|---:|{'---:|' * len(scores)}\n"
    outcomes = {tool: {one["id"]: one for one in document["records"]} for tool, document in scores.items()}
    for name in (*CLASSES, "all"):
        mine = [one for one in faults if name in (one.fault_class, "all")]
        if not mine:
            continue
        cells = [_found(mine, outcomes[tool]) for tool in scores]
        yield f"| {name} | {len(mine)} | {' | '.join(cells)} |\n"
    yield from _within(scores)
    causes = Counter(one["cause"] for one in outcomes[next(iter(scores))].values() if one["outcome"] == MISSED)
    if causes:
        listed = ", ".join(
            f"{cause} {count}" for cause, count in sorted(causes.items(), key=lambda row: (-row[1], row[0]))
        )
        yield f"\nWhy kvproof misses faults: {listed}.\n"


def _within(scores: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Tools with other efforts are compared within the smallest one."""
    operations = {tool: effort_of(document["effort"], None).operations for tool, document in scores.items()}
    least = min(operations.values())
    for tool, document in scores.items():
        if operations[tool] > least:
            early = [
                [sight for sight in one["sights"] if sight["num_operations"] <= least] for one in document["records"]
            ]
            num = sum(2 * len(each) > len(document["seeds"]) for each in early)
            yield f"\n{tool} finds {num} of them within {least:,} operations.\n"


def _found(faults: list[FaultRecord], outcomes: dict[str, Any]) -> str:
    """How many of these faults a tool has found, and how many of them could not be hunted or were not yet."""
    counts = Counter(outcomes[one.id]["outcome"] if one.id in outcomes else NOT_HUNTED for one in faults)
    open_ones = f" ({counts[NOT_HUNTED]} not hunted)" if counts[NOT_HUNTED] else ""
    return f"{counts[FOUND]}{open_ones}"


def record_page(fault: FaultRecord) -> str:
    """The page of one record, for the site."""
    name = f"{fault.id} ({fault.alias})" if fault.alias else fault.id
    rows = {
        "what a user sees": fault.harm,
        "shown in": ", ".join(fault.bad),
        "not in": ", ".join(fault.good) or "no release that was run",
        "state": ", ".join([fault.state, *map(_link, fault.links)]),
        "place": f"`{fault.place}`",
        "class": fault.fault_class,
        "property": f"`{fault.property_id}`" if fault.property_id else "none of kvproof's",
        "saved run": f"`kvproof replay examples/traces/{fault.trace}.json`" if fault.trace else "none",
        "script": f"`examples/reproductions/{fault.script}`" if fault.script else "none",
        "a default hunt": f"misses it: {fault.missed.text} ({fault.missed.cause})" if fault.missed else "",
    }
    table = "".join(f"| {title} | {_cell(text)} |\n" for title, text in rows.items() if text)
    return f"# {name}\n\n{fault.mechanism}\n\n| | |\n|---|---|\n{table}\n{fault.story.strip()}\n"


def read_scores() -> dict[str, dict[str, Any]]:
    """The committed scores, by tool."""
    return {tool: msgspec.to_builtins(read_score(path)) for tool, path in SCORES.items() if path.exists()}


if __name__ == "__main__":
    PAGE.write_text(page(read_all(RECORDS), read_scores()), encoding="utf-8")
