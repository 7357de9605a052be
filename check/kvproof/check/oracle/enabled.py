"""Which operations of a judge are enabled: one text for the searches and for the judge itself.

A judge does an operation by its handler `op_<name>`. The searches draw from `OperationJudge.enabled`, and `apply` asks
the same rules before it calls the handler, so an operation that is not enabled is skipped and changes nothing. In a
`RuledJudge` the rule of an operation stands above its handler; the judge of managers, whose walks are the fastest, has
its rules in one method. The class of the operation adds what no state can change: whether it is possible in this
configuration. A rule does not say whether the other arguments fit (a number that is not in use, a prompt that a table
can hold); a handler returns False if they do not.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Capabilities, Config
from kvproof.check.protocol.operations import TypedOperation
from kvproof.spec.trace import Operation

Handler = TypeVar("Handler", bound=Callable[..., bool])


@dataclass(frozen=True)
class Rule:
    """When an operation is enabled.

    when: the condition on the judge; None if there is none. about: the numbers that the first argument may be; None if
    the first argument does not name anything that is there already.
    """

    when: Callable[[Any], bool] | None = None
    about: Callable[[Any], Collection[int]] | None = None


def enabled_when(
    when: Callable[[Any], bool] | None = None, about: Callable[[Any], Collection[int]] | None = None
) -> Callable[[Handler], Handler]:
    """The rule of a handler, as a decorator; the fields of `Rule`."""

    def give(handler: Handler) -> Handler:
        vars(handler)["rule"] = Rule(when, about)
        return handler

    return give


class OperationJudge:
    """A judge that does operations. `kinds` has their classes, and each has a handler `op_<name>`."""

    kinds: ClassVar[Mapping[str, type[TypedOperation]]] = {}
    handlers: ClassVar[dict[str, Callable[..., bool]]] = {}
    answer: str  # of the subject to the last operation, as text
    is_refused = False  # whether the subject refused the last operation

    def __init_subclass__(cls) -> None:
        cls.handlers = {name: getattr(cls, f"op_{name}") for name in cls.kinds if hasattr(cls, f"op_{name}")}

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
        return self.is_enabled(name, *arguments) and self.handlers[name](self, *arguments)

    def apply(self, operation: Operation) -> bool:
        """Do one operation if it is enabled, and return whether it was done.

        Raises Finding, and AdapterError if the adapter breaks the protocol.
        """
        if operation[0] not in self.handlers:
            raise ValueError(f"there is no operation {operation[0]!r}; there are {', '.join(self.handlers)}")
        self.answer, self.is_refused = "", False
        try:
            return self.do(*operation)
        except Finding:
            self.check_observed()
            raise
        except (TypeError, AttributeError, IndexError, KeyError) as error:
            self.check_observed()
            raise AssertionError(f"the judge failed in {operation}: {type(error).__name__}: {error}") from error

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""


class RuledJudge(OperationJudge):
    """A judge whose handlers have a rule each (`enabled_when`)."""

    rules: ClassVar[dict[str, Rule]] = {}
    config: Config
    capabilities: Capabilities

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.rules = {name: vars(handler)["rule"] for name, handler in cls.handlers.items()}

    def enabled(self) -> dict[str, list[int]]:
        """The kinds that are enabled now, each with what it may be about."""
        listed = ((name, rule.about) for name, rule in self.rules.items() if self._holds(name, rule))
        found = {name: None if about is None else list(about(self)) for name, about in listed}
        return {name: about or [] for name, about in found.items() if about is None or about}

    def is_enabled(self, name: str, *arguments: Any) -> bool:
        """Whether the operation is enabled now; without arguments, whether any of its kind may be."""
        rule = self.rules[name]
        if not self._holds(name, rule):
            return False
        return rule.about is None or (arguments[0] in rule.about(self) if arguments else bool(rule.about(self)))

    @cached_property
    def _possible(self) -> frozenset[str]:
        """The kinds of operation that this configuration and these capabilities allow."""
        return frozenset(name for name in self.rules if self.kinds[name].is_possible(self.config, self.capabilities))

    def _holds(self, name: str, rule: Rule) -> bool:
        return name in self._possible and (rule.when is None or rule.when(self))
