"""What a fork does for the process that asked for it: calls of its subject, and whole searches.

The answer to a call is what the subject answered or raised; the answer to a search is its result, or why it could not
be done. A fault of the judge is told with its traceback, as it would be in one process.
"""

import traceback
from collections.abc import Callable
from typing import Any

from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.messages import Connection, pack, text_of, unpack
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import OutsideContract, Unsupported
from kvproof.check.search.exhaustive.manager import explore_subject
from kvproof.check.search.exhaustive.pool import explore_pool
from kvproof.check.search.manager_operations import walk
from kvproof.check.search.pool_operations import walk_pool
from kvproof.check.search.random_walk import WalkOptions
from kvproof.check.search.scheduler_operations import walk_loop
from kvproof.check.search.shrinking.pool import minimise_pool
from kvproof.check.search.shrinking.scheduler import minimise_loop
from kvproof.check.search.shrinking.shorter_runs import shortest
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.registry import Factory

WITHOUT_LIMIT_SECONDS = 1e8  # the other side watches the time
TEXT_MAX = 4000


def serve(connection: Connection, factory: Factory, journal: Journal) -> None:
    """Answer until the other side has gone."""
    subject: Any = None
    while (request := connection.receive()) is not None:
        try:
            if subject is None:
                subject = factory()
            kind, name, arguments = request
            done = _call(subject, name, arguments) if kind == "call" else _search(subject, name, arguments, journal)
        except UnknownSubject as error:
            done = ["unknown", str(error)]
        connection.send(done)


def _call(subject: Any, name: str, arguments: list[Any]) -> list[Any]:
    try:
        return ["done", pack(getattr(subject, name)(*[unpack(argument) for argument in arguments]))]
    except Unsupported as error:
        return ["unsupported", _text(error)]
    except AdapterError as error:
        return ["adapter", _text(error)]
    except OutsideContract as error:
        return ["contract", error.assumption, error.sentence]
    except Finding as finding:
        return ["finding", pack(finding)]
    except BaseException as error:  # SystemExit too: it is the judge who says what that means
        return ["raised", type(error).__name__, _text(error)]


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = text_of(error)
    return text[:TEXT_MAX].encode("utf-8", "backslashreplace").decode("utf-8")


def _search(subject: Any, name: str, arguments: list[Any], journal: Journal) -> list[Any]:
    named = {key: unpack(value) for key, value in arguments}
    try:
        return ["done", pack(SEARCHES[name](subject, journal, **named))]
    except Unsupported as error:
        return ["unsupported", _text(error)]
    except AdapterError as error:
        return ["adapter", _text(error)]
    except MemoryError:
        return ["memory"]
    except Exception as error:
        return ["fault", "".join(traceback.format_exception(error))[-TEXT_MAX:]]


def _walk(walk: Callable[..., Any]) -> Callable[..., Any]:
    def searched(subject: Any, journal: Journal, *, seed: int, options: dict[str, Any], **named: Any) -> Any:
        mine = WalkOptions(begin=journal.begin, run_seconds=WITHOUT_LIMIT_SECONDS, **options)
        done = walk(subject, seed, **named, options=mine)
        done.operations = list(done.operations)  # without its journal
        return done

    return searched


def _explore(explore: Callable[..., Any]) -> Callable[..., Any]:
    def searched(subject: Any, journal: Journal, **named: Any) -> Any:
        return explore(subject, **named, begin=journal.begin, transition_seconds=WITHOUT_LIMIT_SECONDS)

    return searched


def _shorten(shorten: Callable[..., Any]) -> Callable[..., Any]:
    def searched(subject: Any, journal: Journal, **named: Any) -> Any:
        return shorten(lambda: subject, **named)

    return searched


SEARCHES: dict[str, Callable[..., Any]] = {
    "walk": _walk(walk),
    "walk_loop": _walk(walk_loop),
    "walk_pool": _walk(walk_pool),
    "explore": _explore(explore_subject),
    "explore_pool": _explore(explore_pool),
    "shortest": _shorten(shortest),
    "minimise_loop": _shorten(minimise_loop),
    "minimise_pool": _shorten(minimise_pool),
}
