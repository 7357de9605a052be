"""The forks of a subject: start the process that forks it, and request forks with fresh subjects."""

import os
import sys
from contextlib import suppress
from typing import Any

from kvproof.check.hosts.channel import ChannelError
from kvproof.check.hosts.fork_client import Fork, ForkingProcess
from kvproof.check.hosts.limits import Limits
from kvproof.check.hosts.program import module
from kvproof.check.hosts.time_limit import AGAIN_SECONDS_MIN, OutOfTime, seconds_left
from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.messages import unpack
from kvproof.check.oracle.level import LEVELS
from kvproof.check.protocol.manager import Assumption, Capabilities
from kvproof.check.subjects import SubjectNotReady, UnknownSubject

COMMAND = module("kvproof.check.isolation.fork_server")
LEVEL_NAMES = frozenset(level.name for level in LEVELS)
WROTE_TO_CHANNEL = "it wrote to descriptors of its process that are not its own"


class ForkClient:
    """The fork server of one subject. Raises UnknownSubject if the subject cannot be created.

    A server that a subject has ended is started again for the next fork, within what is left of the run. level, name,
    capabilities, assumptions: those of the subject.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self.subject, self.limits = name, limits
        self._start()

    def _start(self) -> None:
        self.server = ForkingProcess(COMMAND)
        self.level, self.name, self.capabilities, self.assumptions = self._handshake()

    def close(self) -> None:
        """End the server, and what it has started."""
        self.server.close()

    def fork(self, journal: Journal, purpose: bytes) -> Fork:
        """A fork with a fresh subject. purpose: CALLS_ONLY or SEARCH. Raises ServerGone if there is no server."""
        if self.server.has_ended:
            self.close()
            self._start()
        return self.server.fork(purpose, journal)

    def _handshake(self) -> tuple[str, str, Capabilities, tuple[Assumption, ...]]:
        seconds = min(self.limits.start_seconds, max(AGAIN_SECONDS_MIN, seconds_left()))
        answer: Any
        try:
            answer = self.server.ask([self.subject, sys.path, self.limits.memory_bytes, os.getpid()], seconds)
        except (TimeoutError, OutOfTime):
            self.server.kill()
            if seconds_left() <= 0:  # it is made again at the end of a run, which says nothing about it
                raise OutOfTime from None
            late = f"{self.subject}: the subject was not ready within {self.limits.start_seconds:g} s"
            raise SubjectNotReady(late) from None
        except OSError:
            answer = None
        except ChannelError as error:
            answer = [str(error)]
        match answer:
            case None:
                reason = f"its process {self.server.how_gone()}"
            case ["unknown", str(reason)]:
                self.close()
                raise UnknownSubject(reason)
            case ["made", str(level), str(name), capabilities, assumptions] if level in LEVEL_NAMES:
                with suppress(ChannelError, TypeError):
                    offers, assumed = unpack(capabilities), tuple(unpack(assumptions))
                    if isinstance(offers, Capabilities) and all(isinstance(one, Assumption) for one in assumed):
                        return level, name, offers, assumed
                reason = WROTE_TO_CHANNEL
            case _:
                reason = WROTE_TO_CHANNEL
        self.server.kill()
        raise UnknownSubject(f"{self.subject}: the subject cannot be created: {reason}")
