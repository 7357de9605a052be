"""Which operations of a judge are enabled: one text for the searches and for the judge itself.

A judge does an operation by its handler `op_<name>`, a method of its own or of one of the objects that it holds. The
searches draw from `OperationJudge.enabled`, and `apply` asks the same rules before it calls the handler. What is not
enabled is skipped and changes nothing. In a `RuledJudge` the rule of an operation stands above its handler;
the judge of managers, whose walks are the fastest, has its rules in one method. The class of the operation adds what no
state can change: whether it is possible in this configuration. A rule does not say whether the other arguments fit (a
number that is not in use, a prompt that a table can hold); a handler returns False if they do not.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from typing import Any, ClassVar, TypeVar

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.operations import TypedOperation
from kvproof.spec.trace import Operation

Method = TypeVar("Method", bound=Callable[..., bool])
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Rule:
    """When an operation is enabled.

    when: the condition on the object that has the handler; None if there is none. about: the numbers that the first
    argument may be; None if the first argument does not name anything that is there already.
    """

    when: Callable[[Any], bool] | None = None
    about: Callable[[Any], Collection[int]] | None = None


def enabled_when(
    when: Callable[[Any], bool] | None = None, about: Callable[[Any], Collection[int]] | None = None
) -> Callable[[Method], Method]:
    """The rule of a handler, as a decorator; the fields of `Rule`."""

    def give(method: Method) -> Method:
        vars(method)["rule"] = Rule(when, about)
        return method

    return give


def observation_checked(method: Callable[[Any, Any], Answer]) -> Callable[[Any, Any], Answer]:
    """A method that judges, whose failures are the adapter's if what it showed has a wrong type. A decorator.

    Types are not checked at each call, so a wrong one shows as a finding, or as an exception of the judge.
    """

    @wraps(method)
    def judged(judge: Any, what: Any) -> Answer:
        try:
            return method(judge, what)
        except Finding:
            judge.check_observed()
            raise
        except (TypeError, AttributeError, IndexError, KeyError) as error:
            judge.check_observed()
            raise AssertionError(f"the judge failed in {what}: {type(error).__name__}: {error}") from error

    return judged


class Reply:
    """How the subject replied to the last operation: as text for people, and whether it refused.

    text: or a function that makes the text, where that takes long.
    """

    __slots__ = ("is_refusal", "text")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """An operation begins."""
        self.text: str | Callable[[], str] = ""
        self.is_refusal = False


@dataclass(frozen=True)
class Handler:
    """Does the operations of one kind: a method of an object that the judge holds.

    place: of that object among the parts of the judge. rule: if it has one (`enabled_when`).
    """

    place: int
    method: Callable[..., bool]
    rule: Rule


@cache
def _handlers_of(judge: Any, parts: tuple[type, ...]) -> dict[str, Handler]:
    """The handlers of judges of a class with parts of these classes, in the order of the kinds."""
    return {
        name: Handler(place, method, vars(method).get("rule", Rule()))
        for name in judge.kinds
        for place, part in enumerate(parts)
        if (method := getattr(part, f"op_{name}", None))
    }


class OperationJudge:
    """A judge that does operations. `kinds` has their classes.

    parts: the objects that do the operations, each by a method `op_<name>`. reply: of the subject to the last
    operation.
    """

    kinds: ClassVar[Mapping[str, type[TypedOperation]]] = {}

    def __init__(self, reply: Reply, *parts: Any) -> None:
        self.reply, self.parts = reply, parts
        judge: Any = type(self)
        self.handlers = _handlers_of(judge, tuple(map(type, parts)))

    @property
    def answer(self) -> str:
        """The answer of the subject to the last operation, as text."""
        text = self.reply.text
        return text if isinstance(text, str) else text()

    @property
    def is_refused(self) -> bool:
        """Whether the subject refused the last operation."""
        return self.reply.is_refusal

    def enabled(self) -> dict[str, list[int]]:
        """The kinds of operation that are enabled now, each with the numbers that it may be about.

        A kind that is about nothing that is there has an empty list.
        """
        raise NotImplementedError

    def is_enabled(self, name: str, *arguments: Any) -> bool:
        """Whether the operation is enabled now; without arguments, whether any of its kind may be."""
        raise NotImplementedError

    def do(self, name: str, *arguments: Any) -> bool:
        """Do an operation if it is enabled, and return whether it was done. Raises Finding, AdapterError."""
        if not self.is_enabled(name, *arguments):
            return False
        handler = self.handlers[name]
        return handler.method(self.parts[handler.place], *arguments)

    @observation_checked
    def apply(self, operation: Operation) -> bool:
        """Do one operation if it is enabled, and return whether it was done.

        Raises Finding, and AdapterError if the adapter breaks the protocol.
        """
        if operation[0] not in self.handlers:
            raise ValueError(f"there is no operation {operation[0]!r}; there are {', '.join(self.handlers)}")
        self.reply.clear()
        return self.do(*operation)

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""


class RuledJudge(OperationJudge):
    """A judge whose handlers have a rule each (`enabled_when`), which is asked of the part that has the handler."""

    config: Config
    capabilities: Capabilities

    def enabled(self) -> dict[str, list[int]]:
        """The kinds that are enabled now, each with what it may be about."""
        found: dict[str, list[int]] = {}
        for name, handler in self.handlers.items():
            if self._holds(name, handler):
                part, about = self.parts[handler.place], handler.rule.about
                listed = [] if about is None else list(about(part))
                if listed or about is None:
                    found[name] = listed
        return found

    def is_enabled(self, name: str, *arguments: Any) -> bool:
        """Whether the operation is enabled now; without arguments, whether any of its kind may be."""
        handler = self.handlers[name]
        if not self._holds(name, handler):
            return False
        about = handler.rule.about
        if about is None:
            return True
        listed = about(self.parts[handler.place])
        return arguments[0] in listed if arguments else bool(listed)

    @cached_property
    def _possible(self) -> frozenset[str]:
        """The kinds of operation that this configuration and these capabilities allow."""
        return frozenset(name for name in self.handlers if self.kinds[name].is_possible(self.config, self.capabilities))

    def _holds(self, name: str, handler: Handler) -> bool:
        when = handler.rule.when
        return name in self._possible and (when is None or when(self.parts[handler.place]))
