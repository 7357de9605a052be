"""Calls of a subject: an exception of the subject is a finding, one of the adapter or of kvproof is not."""

from typing import Any, Protocol

from kvproof.check.hosts.interrupt import is_answer, is_skip
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.adapter_fault import (
    Remarked,
    about_refusals,
    places_of,
    require_fault_of_manager,
    where_raised,
)
from kvproof.check.protocol.capabilities import Capabilities, OfALevel
from kvproof.check.protocol.fault_attribution import StandInError, require_fault_of_subject
from kvproof.check.protocol.finding import ADDRESS, CONTRACT, AdapterError, Finding, error_text
from kvproof.check.protocol.manager import Config, OutsideContract, Unsupported
from kvproof.check.protocol.outside_contract import is_outside_contract
from kvproof.check.protocol.own_property import is_property
from kvproof.reports.document import encodable

DOUBLE_FREE_PHRASES = "double free", "doublefree", "already freed", "already free"
CALL_CHARACTERS, ERROR_CHARACTERS = 300, 160


class ObservedSubject(Protocol):
    """The part of a subject that the judges of all levels use; the other calls are looked up by their names."""

    @property
    def capabilities(self) -> OfALevel:
        """What it declares that it can do."""

    def open(self, config: Any) -> None:
        """Drop what there was, and start with nothing held. Raises Unsupported."""

    def observe(self) -> Any:
        """The current state."""


class SubjectCalls:
    """One subject, which is opened and called in the name of a judge."""

    def __init__(self, subject: ObservedSubject) -> None:
        self.subject, self.capabilities = subject, capabilities_of(subject)

    def open(self, config: Config) -> None:
        """Open the subject in this configuration. Raises Unsupported, and what `call` raises."""
        try:
            self.subject.open(config)
        except (Unsupported, AdapterError, StandInError, Finding):
            raise
        except BaseException as error:  # a subject that ends the process gives no answer
            if not is_answer(error) or is_skip(error):
                raise
            call = f"open({config.as_dict()})"
            require_fault_of_subject(error, call)
            require_fault_of_manager(error, call, self.subject)
            message = encodable(f"{type(error).__name__}: {error_text(error)}")[: max(0, CALL_CHARACTERS - len(call))]
            raise raised("total-calls", "open", call, message, error) from error

    def call(self, property: str, name: str, *arguments: Any) -> Any:
        """Call the subject. An exception refutes `property`; a double free refutes `no-double-free`.

        Raises Finding, AdapterError, and StandInError if the exception is a fault of kvproof.
        """
        try:
            return getattr(self.subject, name)(*arguments)
        except Finding as finding:
            if not is_property(finding.property):
                raise AdapterError(f"{name} raised a Finding of {finding.property!r}, which is no property") from None
            raise
        except (AdapterError, StandInError):
            raise
        except BaseException as error:  # a subject that ends the process gives no answer
            if not is_answer(error):
                raise
            if isinstance(error, OutsideContract) and is_outside_contract(error, name, self.subject):
                asked = {"asked": call_text(name, arguments)}
                text = f"$asked: {error.sentence}"
                raise Finding("total-calls", text, f"{CONTRACT}{error.assumption}", values=asked) from error
            require_fault_of_subject(error, call_text(name, arguments))
            require_fault_of_manager(error, call_text(name, arguments), self.subject)
            if is_double_free(error, self.capabilities):
                property = "no-double-free"
            message = ADDRESS.sub("", encodable(f"{type(error).__name__}: {error_text(error)}").removesuffix(": "))
            remark = error.remark if isinstance(error, Remarked) else about_refusals(name, self.subject)
            message = f"{message[:ERROR_CHARACTERS]}{remark}"
            raise raised(property, name, call_text(name, arguments), message, error) from error


def raised(property: str, call: str, asked: str, message: str, error: BaseException) -> Finding:
    """The finding that a call raised an exception. asked: the call with its arguments.

    If no place is known where it was raised, the identity has the words of the message: nothing else tells two
    exceptions of one type from each other.
    """
    where, values = where_raised(error), {"asked": asked, "message": message}
    sentence = "$asked raised $message" if where else f"$asked raised {message}"
    cause = f"{call} {type(error).__name__}"
    return Finding(property, sentence, cause, frames=places_of(error), raised_in=where, values=values)


def is_double_free(error: BaseException, capabilities: Capabilities) -> bool:
    """Whether the exception reports a double free.

    `Capabilities.double_free_errors` names the exceptions that do. An engine may have none for it, and say it in a
    message; so as a fallback, any exception with one of `DOUBLE_FREE_PHRASES` in its message counts.
    """
    if type(error).__name__ in capabilities.double_free_errors:
        return True
    message = f"{type(error).__name__}: {error_text(error)}".lower()
    return any(phrase in message for phrase in DOUBLE_FREE_PHRASES)


def call_text(name: str, arguments: tuple[Any, ...]) -> str:
    """A call as text."""
    return f"{name}({', '.join(str(a) for a in arguments)})"
