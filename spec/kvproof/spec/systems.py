"""The specifications: of block managers, and of stores of several tiers (`kvproof.spec.store`).

Each is a *system*: a state, the text of its rules and claims, and the domains of its ids. All readers of the language
read any of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kvproof.spec import language, texts
from kvproof.spec.language import COLLECTED, Collected, Domain, Field
from kvproof.spec.text import state


@dataclass(frozen=True, eq=False)
class System:
    """A specification.

    name: of the suite of its obligations. state: the class that has the fields. texts: the modules, in reading order.
    rule_texts: those that have rules or steps. contract_texts: gives the modules of the contracts, which are loaded
    when something asks for them. collected: what the decorators have marked there. domains: by the names in the text.
    """

    name: str
    state: type[Any]
    texts: tuple[ModuleType, ...]
    rule_texts: tuple[ModuleType, ...]
    contract_texts: Callable[[], tuple[ModuleType, ...]]
    collected: Collected
    domains: Mapping[str, Domain]
    fields: dict[str, Field]

    @property
    def ghosts(self) -> frozenset[str]:
        """The names of the ghost fields."""
        return frozenset(name for name, field in self.fields.items() if field.kind == "ghost")

    @property
    def constants(self) -> dict[str, int]:
        """The numbers that the text of the state names."""
        return {name: value for name, value in vars(self.texts[0]).items() if isinstance(value, int)}


def fields_of(state: type[Any]) -> dict[str, Field]:
    """The fields of the state of a specification, by name."""
    return {name: field for name, field in vars(state).items() if isinstance(field, Field)}


def _contracts_of_block_managers() -> tuple[ModuleType, ...]:
    from kvproof.spec.contract_texts import CONTRACT_TEXTS

    return CONTRACT_TEXTS


BLOCK_MANAGERS = System(
    "specification",
    state.State,
    texts.TEXTS,
    texts.RULE_TEXTS,
    _contracts_of_block_managers,
    COLLECTED,
    {name: value for name, value in vars(language).items() if isinstance(value, Domain)},
    fields_of(state.State),
)
