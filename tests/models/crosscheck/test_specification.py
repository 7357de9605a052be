"""The specification: what the prover is given about every size, in the states of random walks, against native runs."""

from kvproof.models.crosscheck.comparison import Crosscheck
from kvproof.models.crosscheck.walk import SIZES, Walk
from kvproof.spec.language import COLLECTED

CLAIMS = [claim.name for claim in COLLECTED.invariants + COLLECTED.theorems]


def test_rules_and_claims_agree_in_fifty_thousand_cells() -> None:
    crosscheck = Crosscheck()
    walk = Walk(crosscheck, SIZES[0], seed=1)
    while crosscheck.num_cells < 50_000:
        for situation, rule, arguments in walk.steps():
            assert crosscheck.compare_rule(rule, situation, arguments) is not None
            for name in CLAIMS:
                assert crosscheck.compare_claim(crosscheck.claim(name), situation) is True, name
    assert len(walk.fired) >= 20
