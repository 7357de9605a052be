"""A program behind a pipe as a subject of manager level, sequence by sequence; see `docs/pipe.md`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kvproof.check.isolation.limits import Limits
from kvproof.check.isolation.pipe.process import Program
from kvproof.check.isolation.remote_subject import raised_as
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import (
    Admission,
    Assumption,
    Capabilities,
    Config,
    Observation,
    Pair,
    Scheduled,
    Unsupported,
)
from kvproof.check.protocol.manager_adapter import BOOLEAN_ADMISSION, ManagerAdapter
from kvproof.check.subjects import UnknownSubject

PREFIX = "pipe:"
PROTOCOL = 1


class Hello(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of a program."""

    kvproof: int
    name: str
    capabilities: dict[str, bool] = {}
    assumptions: list[dict[str, str]] = []


class Shown(msgspec.Struct, forbid_unknown_fields=True):
    """The answer to `observe`: block ids run over both devices, host block b is num_gpu_blocks + b."""

    tables: dict[int, list[int]]
    free: int
    free_host: int = 0
    refs: list[int] | None = None
    free_ids: list[int] | None = None


class Failed(Exception):
    """The program answered with an error."""


class Refusal(Exception):
    """The program refused."""


def factory_of(name: str, limits: Limits | None = None) -> Callable[[], "PipeSubject"]:
    """What makes the subject of `pipe:COMMAND`: each a program of its own. Raises UnknownSubject."""
    return lambda: PipeSubject(name.removeprefix(PREFIX), limits or Limits())


class PipeSubject(ManagerAdapter):
    """One program. It is started anew after it has ended."""

    refusals = (Refusal,)

    def __init__(self, command: str, limits: Limits) -> None:
        self.command, self.limits = command, limits
        self.program = Program(command, limits)
        self._seen: Shown | None = None
        hello = self._met()
        self.name = hello.name
        foreign = sorted(hello.capabilities.keys() - Capabilities.__dataclass_fields__.keys())
        if foreign:
            names = ", ".join(Capabilities.__dataclass_fields__)
            raise UnknownSubject(f"pipe:{command}: there is no capability {foreign[0]!r}; there are {names}")
        self.capabilities = Capabilities(**hello.capabilities)
        try:
            self.assumptions = (BOOLEAN_ADMISSION, *(Assumption(**one) for one in hello.assumptions))
        except TypeError:
            raise UnknownSubject(f"pipe:{command}: an assumption has a name and a sentence") from None

    def _met(self) -> Hello:
        said = self.program.hello()
        try:
            hello = msgspec.convert(said, Hello)
        except msgspec.ValidationError as error:
            self.program.end()
            raise UnknownSubject(f"pipe:{self.command}: its first line is wrong: {error}") from error
        if hello.kvproof != PROTOCOL:
            self.program.end()
            raise UnknownSubject(f"pipe:{self.command}: it speaks protocol {hello.kvproof}; this is {PROTOCOL}")
        return hello

    def _ask(self, call: str, kind: Any, **arguments: Any) -> Any:
        """The answer to a call, of that type."""
        self._seen = None
        said = self.program.ask(call, **arguments)
        if "unsupported" in said:
            raise Unsupported(str(said["unsupported"]))
        if "refused" in said:
            raise Refusal(str(said["refused"]))
        if "error" in said:
            raise raised_as(str(said.get("type", Failed.__name__)))(str(said["error"]))
        if not {"answer"} <= said.keys() <= {"answer", "seen"}:
            raise AdapterError(f"{call} was answered by an object with {sorted(said)}; it must have `answer`")
        if "seen" in said:
            self._seen = self._typed(call, said["seen"], Shown)
        return self._typed(call, said["answer"], kind)

    def _typed(self, call: str, answer: Any, kind: Any) -> Any:
        try:
            return msgspec.convert(answer, kind, strict=kind is not Shown)
        except msgspec.ValidationError as error:
            raise AdapterError(f"{call} was answered by {answer!r}, which is wrong: {error}") from None

    def make(self, config: Config) -> Program:
        """Tell the program to begin anew."""
        if not self.program.is_alive:
            self.program = Program(self.command, self.limits)
            self._met()
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
        """What the program lacks, its answers say."""

    def _content(self, seq: int) -> dict[str, Any]:
        """What the KV of a sequence depends on; what is as usual is left out."""
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
        """`can_allocate`, of the first sequence."""
        answer = self._ask("can_allocate", bool | str, **self._content(self.groups[group][0]))
        if isinstance(answer, str):
            if answer not in Admission.__members__:
                raise AdapterError(f"can_allocate was answered by {answer!r}; it must be true, false, OK, LATER, NEVER")
            return Admission(answer)
        if answer:
            return Admission.OK
        return Admission.LATER if self._admitted else Admission.NEVER

    def allocate(self, seq: int, tokens: list[int]) -> int | None:
        """`allocate`."""
        return self._ask("allocate", int | None, seq=seq, **self._content(seq))  # type: ignore[no-any-return]

    def can_append(self, group: int) -> bool:
        """`can_append`, for every sequence of the group."""
        seqs = self.groups[group]
        return bool(self._ask("can_append", bool, seqs=seqs, lengths=[len(self.tokens[seq]) for seq in seqs]))

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        """`append`; the copies."""
        return self._pairs("append", seq=seq, num_tokens=num_tokens, **self._content(seq))

    def _pairs(self, call: str, **arguments: Any) -> list[Pair]:
        return [(a, b) for a, b in self._ask(call, list[tuple[int, int]] | None, **arguments) or ()]

    def release(self, seq: int) -> None:
        """`release`."""
        self._ask("release", None, seq=seq)

    def share(self, parent: int, child: int) -> None:
        """`share`."""
        self._ask("share", None, parent=parent, child=child)

    def hits(self, group: int) -> int:
        """`hits`, a question."""
        return int(self._ask("hits", int, **self._content(self.groups[group][0])))

    def reset_cache(self) -> bool:
        """`reset_cache`."""
        return bool(self._ask("reset_cache", bool))

    def can_swap_out(self, group: int) -> Admission:
        """`can_swap_out`; no is later."""
        return self._can("can_swap_out", group)

    def can_swap_in(self, group: int) -> Admission:
        """`can_swap_in`; no is later."""
        return self._can("can_swap_in", group)

    def _can(self, call: str, group: int) -> Admission:
        seqs = self.groups[group]
        is_ok = self._ask(call, bool, seqs=seqs, lengths=[len(self.tokens[seq]) for seq in seqs])
        return Admission.OK if is_ok else Admission.LATER

    def swap_out(self, group: int) -> list[Pair]:
        """`swap_out`; the pairs."""
        return self._pairs("swap_out", seqs=self.groups[group])

    def swap_in(self, group: int) -> list[Pair]:
        """`swap_in`; the pairs."""
        return self._pairs("swap_in", seqs=self.groups[group])

    def step_done(self, step: list[Scheduled]) -> None:
        """`computed`: told to a program with a prefix cache."""
        if self.config.caching:
            self._ask("computed", None, seqs=[s.seq for s in step], stops=[s.stop for s in step])

    def tables(self) -> Mapping[int, Sequence[int]]:
        """Told by `observe`, like all that is seen."""
        return {seq: table for seq, [table] in self.observe().tables.items()}

    def num_free(self) -> int:
        """Told by `observe`."""
        return self.observe().free[0]

    def observe(self) -> Observation:
        """What the last answer showed beside itself, or else `observe`."""
        shown = self._ask("observe", Shown) if self._seen is None else self._seen
        tables = {seq: [table] for seq, table in shown.tables.items()}
        return Observation(tables, (shown.free, shown.free_host), (), shown.refs, shown.free_ids)
