"""A transfer under way, as the judge of stores keeps it."""

from dataclasses import dataclass, field

NO_END = -1  # of a pin that is no lease


@dataclass
class Transfer:
    """A transfer under way. pins and flights: one for each key. failed: the places of keys for which it failed.

    until: the time at which what it holds is given up, or NO_END. has_lapsed: that time is over. is_taken_over: another
    store wrote a key of it after that time. is_asking: a lower tier has not answered it yet, and it has no slots.
    from_device: it copies from the device, after the earlier ones. named: further keys that may be used when it ends.
    is_remote: a reader far away has blocks for what the load brings; writes: its pins on these. is_void: the load lost
    its source before it landed.
    """

    number: int
    request: int
    is_load: bool
    owner: int
    keys: list[int]
    slots: list[int]
    pins: list[int] = field(default_factory=list)
    flights: list[int] = field(default_factory=list)
    failed: tuple[int, ...] = ()
    has_landed: bool = False
    until: int = NO_END
    has_lapsed: bool = False
    is_taken_over: bool = False
    is_asking: bool = False
    from_device: bool = False
    named: list[int] = field(default_factory=list)
    is_remote: bool = False
    writes: list[int] = field(default_factory=list)
    is_void: bool = False

    @property
    def is_stopped(self) -> bool:
        """Whether its lease is over, and it moves nothing more."""
        return self.has_lapsed and not self.is_remote
