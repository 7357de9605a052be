"""A manager that takes KV from elsewhere."""

from dataclasses import replace
from typing import Any

from tests.lawful.caching import Caches

from kvproof.check import Config
from kvproof.check.protocol.manager import Admitted, Refused


class Loads(Caches):
    """KV comes from elsewhere. What is loaded is cached when the load is over."""

    capabilities = replace(Caches.capabilities, chunked=True, loads=True, steps_are_certain=True)

    def make(self, config: Config) -> Any:
        self.elsewhere: dict[int, int] = {}  # by group, tokens
        return super().make(config)

    def new_elsewhere(self, group: int, num_tokens: int) -> None:
        self.elsewhere[group] = num_tokens

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        done = super().admit(group, num_tokens)
        if isinstance(done, Refused):
            return done
        return done._replace(loaded=max(0, self.elsewhere.get(group, 0) - done.hit))
