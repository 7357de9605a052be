"""What a long walk of a pair must reach, and what each property needs of it."""

from collections.abc import Callable, Mapping

from kvproof.check.oracle.coverage import NOTHING, REPEATED, Need
from kvproof.check.protocol.capabilities import Capabilities

LEASES = Need(lambda facts: facts.can.lease_seconds > 0, "the pair holds offers for ever, or does not say how long")
ENDS_LEASES = Need(
    lambda facts: facts.can.lease_seconds > 0 and facts.can.ends_leases,
    "the pair may keep what a lease held that has run out",
)
PAIR_WITNESSES: Mapping[str, Callable[[Capabilities], bool]] = {
    "offered": lambda can: True,
    "claimed": lambda can: True,
    "claimed behind a hit": lambda can: can.caching,
    "hit": lambda can: can.caching,
    "transfer": lambda can: True,
    "arrived": lambda can: True,
    "offer ended": lambda can: True,
    "aborted with a claim": lambda can: True,
    "aborted with a transfer under way": lambda can: True,
    "aborted before its claim": lambda can: True,
    "offer expired": lambda can: can.lease_seconds > 0,
    "lost its source": lambda can: can.lease_seconds > 0 and "slow" in can.weathers,
    "transfer failed": lambda can: "lossy" in can.weathers,
    "noticed again or late": lambda can: can.doubles and "lossy" in can.weathers,
    "lost message": lambda can: can.loses and "lossy" in can.weathers,
    "lost": lambda can: "lossy" in can.weathers,
    "died": lambda can: can.dies and "deadly" in can.weathers,
    "rest": lambda can: True,
}
PAIR_NEEDS: Mapping[str, Need] = {
    "read-back": NOTHING,
    "arrived-whole": NOTHING,
    "source-held": NOTHING,
    "in-flight-held": NOTHING,
    "one-writer": NOTHING,
    "hit-computed": NOTHING,
    "hit-written": NOTHING,
    "abort-unseen": NOTHING,
    "pin-own": NOTHING,
    "no-use-after-free": NOTHING,
    "refcount-exact": NOTHING,
    "conservation": NOTHING,
    "total-calls": NOTHING,
    "no-leak-at-rest": NOTHING,
    "progress": NOTHING,
    "void-told": LEASES,
    "lease-ends": ENDS_LEASES,
    "nondeterministic": REPEATED,
}
