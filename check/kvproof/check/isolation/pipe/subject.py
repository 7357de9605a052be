"""A program behind a pipe as a manager subject. `docs/pipe.md` describes the protocol."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from kvproof.check.hosts.time_limit import Limits
from kvproof.check.isolation.pipe.process import Program
from kvproof.check.isolation.remote_subject import raised_as
from kvproof.check.protocol.capabilities import Capabilities, ManagerCan
from kvproof.check.protocol.fault_attribution import by_means_of_kvproof
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import (
    Admission,
    Admitted,
    Assumption,
    Config,
    Observation,
    Pair,
    Unsupported,
)
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.own import PIPE

PROTOCOL = 1


class Hello(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of a program."""

    kvproof: int
    name: str
    capabilities: dict[str, Any] = {}
    assumptions: list[dict[str, str]] = []


class ObservedState(msgspec.Struct, forbid_unknown_fields=True):
    """The answer to `observe`. Block ids count over both devices: host block b has id num_gpu_blocks + b."""

    tables: dict[int, list[int]]
    num_free: int
    num_free_host: int = 0
    refcounts: list[int] | None = None
    free_ids: list[int] | None = None


OLDER_NAMES = {"free": "num_free", "free_host": "num_free_host", "refs": "refcounts"}  # of the fields of an observation


class Failed(Exception):
    """The program answered with an error."""


class Refusal(Exception):
    """The program refused a call."""


def factory_of(name: str, limits: Limits | None = None) -> Callable[[], "PipeSubject"]:
    """A factory of the subject `pipe:COMMAND`. Each subject starts its own program and may raise UnknownSubject."""
    return lambda: PipeSubject(name.removeprefix(PIPE), limits or Limits())


class PipeSubject(ManagerAdapter):
    """A manager in one program, which gets each call by its name. If the program has ended, `open` starts it again."""

    limits_its_calls = True
    is_program = True
    refusals = (Refusal,)

    def __init__(self, command: str, limits: Limits) -> None:
        self.command, self.limits = command, limits
        self.program = Program(command, limits)
        self._observed: ObservedState | None = None
        hello = self._handshake()
        self.name = hello.name
        foreign = sorted(hello.capabilities.keys() - Capabilities.__dataclass_fields__.keys())
        if foreign:
            names = ", ".join(ManagerCan.__dataclass_fields__)
            raise UnknownSubject(f"pipe:{command}: there is no capability {foreign[0]!r}; choose from {names}")
        try:
            self.capabilities = msgspec.convert(hello.capabilities, Capabilities)
        except msgspec.ValidationError as error:
            raise UnknownSubject(f"pipe:{command}: its capabilities are wrong: {error}") from None
        try:
            self.assumptions = (BOOLEAN_ADMISSION, *(Assumption(**one) for one in hello.assumptions))
        except TypeError:
            raise UnknownSubject(f"pipe:{command}: each assumption must have a name and a sentence") from None

    def _handshake(self) -> Hello:
        answer = self.program.hello()
        try:
            hello = msgspec.convert(answer, Hello)
        except msgspec.ValidationError as error:
            self.program.end()
            raise UnknownSubject(f"pipe:{self.command}: its first line is wrong: {error}") from error
        if hello.kvproof != PROTOCOL:
            self.program.end()
            raise UnknownSubject(f"pipe:{self.command}: it uses protocol {hello.kvproof}; kvproof supports {PROTOCOL}")
        return hello

    def _ask(self, call: str, kind: Any, **arguments: Any) -> Any:
        """The answer to a call, converted to the type `kind`."""
        self._observed = None
        answer = self.program.ask(call, **arguments)
        try:
            return self._converted(call, answer, kind)
        except AdapterError:
            self.require_in_step()
            raise

    def require_in_step(self) -> None:
        """Raise AdapterError if the program wrote more lines than it was asked for. It is started again by `open`."""
        self.program.require_in_step()

    def _converted(self, call: str, answer: dict[str, Any], kind: Any) -> Any:
        if "unsupported" in answer:
            raise Unsupported(str(answer["unsupported"]))
        if "refused" in answer:
            raise Refusal(str(answer["refused"]))
        if answer.get("type") == NotImplementedError.__name__:
            raise AdapterError(f"{call} is not written yet in {self.command}")
        if "error" in answer:
            name = str(answer.get("type", Failed.__name__))
            if not name.isidentifier():
                raise AdapterError(f"{call} was answered by an error of the type {name!r}, which is no name of a type")
            raise raised_as(name)(str(answer["error"]))
        if not {"answer"} <= answer.keys() <= {"answer", "seen"}:
            raise AdapterError(f"{call} was answered by an object with {sorted(answer)}; it must have `answer`")
        if "seen" in answer:
            self._observed = self._typed(call, answer["seen"], ObservedState)
        return self._typed(call, answer["answer"], kind)

    def _typed(self, call: str, answer: Any, kind: Any) -> Any:
        if kind is ObservedState and isinstance(answer, dict) and not OLDER_NAMES.keys().isdisjoint(answer):
            answer = {OLDER_NAMES.get(name, name): value for name, value in answer.items()}
        try:
            return msgspec.convert(answer, kind, strict=kind is not ObservedState)
        except msgspec.ValidationError as error:
            raise AdapterError(f"{call} was answered by {answer!r}, which is wrong: {error}") from None

    def make(self, config: Config) -> Program:
        """Open the manager in the program, after starting the program again if it has ended."""
        if not self.program.is_alive:
            with by_means_of_kvproof(f"{self.command} cannot be started again"):
                self.program = Program(self.command, self.limits)
            self._handshake()
        self._ask(
            "open",
            None,
            block_size=config.block_size,
            num_gpu_blocks=config.num_gpu_blocks,
            num_host_blocks=config.num_host_blocks,
            watermark=config.watermark,
            window=config.window or 0,
            caching=config.caching,
            lookahead=config.lookahead,
        )
        return self.program

    def _require_complete(self) -> None:
        """Check nothing: the answers of the program show which calls it lacks."""

    def _content(self, seq: int) -> dict[str, Any]:
        """Everything that the KV of a sequence depends on. Default values are omitted."""
        key, images = self.keys[seq], self.images[seq]
        content: dict[str, Any] = {"tokens": self.tokens[seq]}
        if key.adapter_id:
            content["adapter"] = key.adapter_id
        if key.salt is not None:
            content["salt"] = key.salt
        if images:
            content["images"] = [list(image) for image in images]
        return content

    def can_admit(self, group: int) -> Admission:
        """Ask `can_allocate` about the first sequence of the group."""
        return self.admission(self._admission("can_allocate", **self._content(self.groups[group][0])))

    def _admission(self, call: str, **arguments: Any) -> bool | Admission:
        answer = self._ask(call, bool | str, **arguments)
        if isinstance(answer, str) and answer not in Admission.__members__:
            raise AdapterError(f"{call} was answered by {answer!r}; it must be true, false, OK, LATER or NEVER")
        return Admission(answer) if isinstance(answer, str) else cast(bool, answer)

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        """Ask `allocate`. A hit within a block is answered by [hit, pairs]."""
        answer = self._ask("allocate", int | tuple[int, list[tuple[int, int]]] | None, seq=seq, **self._content(seq))
        return Admitted(*answer) if isinstance(answer, tuple) else answer

    def can_append(self, group: int) -> bool | Admission:
        return self._is_possible("can_append", group)

    def _is_possible(self, call: str, group: int) -> bool | Admission:
        seqs = self.groups[group]
        return self._admission(call, group=group, seqs=seqs, lengths=[len(self.tokens[seq]) for seq in seqs])

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        return self._pairs("append", seq=seq, num_tokens=num_tokens, **self._content(seq))

    def _pairs(self, call: str, **arguments: Any) -> list[Pair]:
        return [(a, b) for a, b in self._ask(call, list[tuple[int, int]] | None, **arguments) or ()]

    def release(self, seq: int) -> None:
        self._ask("release", None, seq=seq)

    def share(self, parent: int, child: int) -> None:
        self._ask("share", None, parent=parent, child=child)

    def hits(self, group: int) -> int:
        return int(self._ask("hits", int, group=group, **self._content(self.groups[group][0])))

    def reset_cache(self) -> bool:
        return bool(self._ask("reset_cache", bool))

    def can_swap_out(self, group: int) -> bool | Admission:
        return self._is_possible("can_swap_out", group)

    def can_swap_in(self, group: int) -> bool | Admission:
        return self._is_possible("can_swap_in", group)

    def swap_out(self, group: int) -> list[Pair]:
        return self._pairs("swap_out", group=group, seqs=self.groups[group])

    def swap_in(self, group: int) -> list[Pair]:
        return self._pairs("swap_in", group=group, seqs=self.groups[group])

    def computed(self, seqs: list[int], stops: list[int]) -> None:
        self._ask("computed", None, seqs=seqs, stops=stops)

    def observe(self) -> Observation:
        """The state that came with the last answer; if there was none, the answer to `observe`."""
        state = self._ask("observe", ObservedState) if self._observed is None else self._observed
        tables = {seq: [table] for seq, table in state.tables.items()}
        return Observation(tables, (state.num_free, state.num_free_host), (), state.refcounts, state.free_ids)
