"""What the documents count is counted here again, so that a number does not outlive what it counts."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.attacks import executors, executors_on_devices, processes_of_subjects, programs, subjects

from kvproof.audit.faults.catalogue import CROSS_CHECK, PIN, by_hand, code_faults, fresh, machinery
from kvproof.audit.mutation.operators import changes, deletions
from kvproof.audit.mutation.weakenings import weakenings
from kvproof.models import pin
from kvproof.models.proofs.lints import lint_names
from kvproof.models.suites import SUITES
from kvproof.spec.language import COLLECTED
from kvproof.spec.store.machine import STORES

TREE = Path(__file__).parents[2]
BOUNDED = "concolic"  # the suite about at most four blocks


@cache
def pinned() -> dict[str, pin.Pinned]:
    """The obligations that are pinned."""
    return pin._read(pin.pinned_lines())


def proofs() -> list[str]:
    """What docs/proofs.md counts of the obligations."""
    suites = Counter(name.partition("/")[0] for name in pinned())
    num, num_trivial, num_rules = len(pinned()), len(pin.pinned_names((pin.TRIVIAL,))), len(COLLECTED.rules)
    store, sets = STORES.collected, len({one.given for one in pinned().values()})
    num_fired = num_rules + len(store.rules)
    return [
        f"All {num:,} obligations are proved",
        *(f"| `{suite}` | {suites[suite]:,} |" for suite in SUITES),
        f"{num_trivial:,} of them need no solver",
        f"asked the other {num - num_trivial:,}, and proves all",
        f"each of the {num_rules} rules leads",
        f"Each of its {len(store.rules)} rules keeps each of its {len(store.invariants)} invariants",
        f"{num_fired} of {num_fired} rules fire",
        f"{sets} of {sets} sets of hypotheses have a model",
    ]


def planted() -> list[str]:
    """What docs/proofs.md counts of the faults of `kvproof faults`."""
    weak = Counter(one.kind for one in weakenings())
    by_question = sum(one.found_by[0] in (CROSS_CHECK, PIN) for one in machinery())
    num_rules, of_stores = len(deletions()) + len(changes()), [*deletions(STORES.name), *changes(STORES.name)]
    return [
        f"changed in every small way | {num_rules} |",
        f"loses a conjunct | {weak['theorems'] + weak['invariants']} |",
        f"a check is missing | {weak['checks']} |",
        f"refuses the first id of a parameter | {weak['guards']} |",
        f"asks less, or requires more | {weak['contracts']} |",
        f"three false texts among them | {len(by_hand())} |",
        f"| {len(machinery())} | the cross-check or the pin {by_question}, ",
        f"the pin {by_question}, a named test {len(machinery()) - by_question} |",
        f"{len(of_stores)} changes of rules and steps, {len(weakenings(STORES.name))} of claims",
        f"`kvproof faults --only code` plants {len(code_faults())} faults",
        f"{len(code_faults())} faults planted in proved methods",
    ]


def readme() -> list[str]:
    """What the README counts."""
    bounded = sum(name.startswith(f"{BOUNDED}/") for name in pinned())
    num, sets = len(pinned()) - bounded, len({one.given for one in pinned().values()})
    return [
        f"lints: {len(lint_names())} of {len(lint_names())} hold",
        f"{sets} of {sets} sets of hypotheses have a model",
        f"{num:,} of {num:,} obligations proved for every size, and {bounded} of {bounded} obligations proved",
        f"({len(pin.pinned_names((pin.TRIVIAL,)))} of them as they stand",
    ]


def attacks() -> list[str]:
    """What docs/reliability.md counts."""
    return [
        f"| {len(subjects.ATTACKS)} hostile subjects",
        f"| {len(processes_of_subjects.ATTACKS)} subjects that change the process",
        f"| {len(programs.ATTACKS)} hostile programs behind a pipe",
        f"| {len(executors.ATTACKS)} hostile executors",
        f"| {len(executors_on_devices.ATTACKS)} executors on the simulated device",
    ]


def fresh_faults() -> list[str]:
    """What docs/blind-spots.md counts."""
    ours = sum("==" not in fault.subject for fault in fresh())
    return [
        f"with {len(fresh())} faults that were written from the code of the subjects alone, {ours} of kvproof's own",
        f"and {len(fresh()) - ours} of the newest releases of five engines",
        f"{sum(' Needs ' in fault.sentence for fault in fresh())} need two features together",
    ]


@pytest.mark.parametrize(
    ("page", "counted"),
    [
        ("docs/proofs.md", proofs),
        ("docs/proofs.md", planted),
        ("README.md", readme),
        ("docs/reliability.md", attacks),
        ("docs/blind-spots.md", fresh_faults),
    ],
)
def test_a_document_counts_what_there_is(page: str, counted: Callable[[], list[str]]) -> None:
    text = " ".join((TREE / page).read_text(encoding="utf-8").split())
    assert [one for one in counted() if one not in text] == []
