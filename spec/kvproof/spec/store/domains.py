"""The domains of the specification of stores, and the types of its parameters. `language` has those that it shares."""

from typing import Annotated

from kvproof.spec.language import BLOCKS, COUNTS, FLAGS, FLIGHTS, IDENTITIES, RANKS, SLOTS, STATUSES, Domain

TIERS = Domain("Tier", "NUM_TIERS")
KEYS = Domain("Key", "NUM_KEYS")
GROUPS = Domain("Group", "NUM_GROUPS")  # groups of layers
PINS = Domain("Pin", "NUM_PINS")  # an id is used again after the pin has ended
OWNERS = Domain("Owner", "NUM_OWNERS")
PARTS = Domain("Part", "NUM_PARTS")  # of what an owner waits for: a notice says of each, once, that it has ended
CLOCKS = Domain("Clock", 1)  # there is one clock
TIMES = Domain("Time", None, is_signed=True)  # of the clock; a negative number: never

NUM_TIERS: int = 1
NUM_KEYS: int = 1
NUM_GROUPS: int = 1
NUM_PINS: int = 1
NUM_OWNERS: int = 1
NUM_PARTS: int = 1

TierId = Annotated[int, TIERS]
KeyId = Annotated[int, KEYS]
GroupId = Annotated[int, GROUPS]
PinId = Annotated[int, PINS]
OwnerId = Annotated[int, OWNERS]
PartId = Annotated[int, PARTS]
Time = Annotated[int, TIMES]

SHARED = (BLOCKS, SLOTS, FLIGHTS, RANKS, COUNTS, IDENTITIES, FLAGS, STATUSES)
DOMAINS = {f"{one.name.upper()}S": one for one in (TIERS, KEYS, GROUPS, PINS, OWNERS, PARTS, CLOCKS, TIMES, *SHARED)}
DOMAINS["IDENTITIES"], DOMAINS["STATUSES"] = DOMAINS.pop("IDENTITYS"), DOMAINS.pop("STATUSS")
