"""The reference of adapters: every call, capability, configuration field and part of an observation, as one page.

All of it is read from the classes of the protocol and their comments, so that the page says what the code does:
`python -m kvproof.check.protocol.reference` prints `docs/adapter-reference.md`, and `make docs-reference` writes it.
"""

import inspect
import re
from dataclasses import dataclass
from typing import Any

from kvproof.check.protocol.adapter_check import RequiredCalls, calls_of
from kvproof.check.protocol.capabilities import EncoderCan, ManagerCan, PairCan, PoolCan, SchedulerCan, StoreCan
from kvproof.check.protocol.encoder import ENCODER_CALLS, EncoderConfig, EncoderObservation, EncoderSubject
from kvproof.check.protocol.manager import Config, Observation
from kvproof.check.protocol.manager_adapter import ALWAYS, INSTEAD, MODULES, NEEDED, description_of, signature_of
from kvproof.check.protocol.pair import PAIR_CALLS, MortalPairSubject, PairAdapter, PairConfig, PairSubject
from kvproof.check.protocol.store import STORE_CALLS, StoreAdapter, StoreConfig, StoreObservation, StoreSubject

FIELD = re.compile(r"^    (\w+): [^=#]+= (.+?)(?:  # (.*))?$", re.MULTILINE)
PART = re.compile(r"(?:^|\. )(\w+): ")
OPTIONAL = "refcounts", "free_ids"
# What a program behind a pipe gets with a call, as JSON, and what it answers. An adapter in Python finds in its own
# attributes what is sent here with the call.
TOKENS = "`tokens`, and `adapter`, `salt`, `images` unless they have their default value"
GROUP = "`group`, `seqs` (its sequences), `lengths` (their numbers of tokens)"
YES_OR_NO = 'true, false, or `"OK"`, `"LATER"`, `"NEVER"`'
FIELDS_OF_OPEN = "the fields that the table of the configuration marks"
PIPE = {
    "make": (f"`open`: {FIELDS_OF_OPEN}", "null"),
    "can_allocate": (TOKENS, YES_OR_NO),
    "allocate": (f"`seq`, {TOKENS}", "null, or a number of tokens; or `[number, [[source, target], …]]`"),
    "can_append": (GROUP, YES_OR_NO),
    "append": (f"`seq`, `num_tokens`, {TOKENS}", "`[[source, target], …]` or null"),
    "release": ("`seq`", "null"),
    "share": ("`parent`, `child`", "null"),
    "hits": (f"`group`, {TOKENS}", "a number of tokens"),
    "computed": ("`seqs`, `stops`", "null"),
    "reset_cache": ("nothing", "true or false"),
    "can_swap_out": (GROUP, YES_OR_NO),
    "can_swap_in": (GROUP, YES_OR_NO),
    "swap_out": ("`group`, `seqs`", "`[[GPU block, host block], …]`"),
    "swap_in": ("`group`, `seqs`", "`[[host block, GPU block], …]`"),
}
OBSERVED = "tables", "num_free", "num_free_host", "refcounts", "free_ids"
SENT_TO_PIPE = "block_size", "num_gpu_blocks", "num_host_blocks", "watermark", "window", "caching", "lookahead"
HEAD = """# Adapter reference

This page is generated from the protocol (`make docs-reference`). `kvproof init` writes an adapter that has the calls
which your capabilities need; [own-manager.md](own-manager.md) is the guide, [pipe.md](pipe.md) is about programs.

Numbers: groups and sequences are numbers that kvproof chooses. Lengths and positions count tokens; sizes of pools count
blocks. GPU block b has id b, host block b has id `num_gpu_blocks + b`, and -1 is a table entry without a block. Only
the pairs of `swap_out` and `swap_in` count on their own device, from 0. An answer of a wrong type or length is a fault
of the adapter, reported with its file and line (exit code 2).
"""
CALLS = """
## Calls

A Python adapter derives from `ManagerAdapter` and defines these methods. `self.config` is the configuration,
`self.manager` what `make` returned, `self.groups[group]` the sequences of a group, `self.tokens[seq]` all tokens of a
sequence, also the one that `append` makes room for, `self.keys[seq]` and `self.images[seq]` what its KV depends on in
addition. `refusals` lists the exceptions by which `allocate` and `append` refuse. A program behind a pipe gets the same
calls with the arguments in the third column. Any yes-or-no question takes true, false or an `Admission`; false means
NEVER if nothing runs, else LATER.

| call in Python | needed | over a pipe: arguments; answer | what it does |
| --- | --- | --- | --- |
"""
OBSERVATIONS = """
## Observations

After each call kvproof looks at the manager. In Python these are methods; a program answers `observe` with an object of
these fields (`free`, `free_host` and `refs` are older names of the second, third and fourth).

| part | needed | what it is |
| --- | --- | --- |
"""
CAPABILITIES = """
## Capabilities

`capabilities = ManagerCan(fork=True, ...)` in Python, `"capabilities":{"fork":true}` in the first line of a program.
kvproof makes no call that needs an undeclared capability, and reports what it could not check. `Capabilities` has the
fields of all levels, and is accepted at each of them.

| capability | default | what it says of the manager | calls that it needs |
| --- | --- | --- | --- |
"""
OF_SCHEDULERS = """
A scheduler declares `SchedulerCan(...)`, which has the capabilities of a manager and these:

| capability | default | what it says of the scheduler |
| --- | --- | --- |
"""
OF_POOLS = """
A block pool declares `PoolCan(...)`:

| capability | default | what it says of the pool |
| --- | --- | --- |
"""
CONFIGURATION = """
## Configuration

`make` gets one configuration; it raises `Unsupported` for one that the manager cannot have. A program gets the fields
with a mark in `open`.

| field | default | over a pipe | what it is |
| --- | --- | --- | --- |
"""
STORES = """
## Stores

A KV store outside the device (`kvproof hunt --level store`) derives from `StoreAdapter` and has these calls. Keys,
requests and transfers are numbers that kvproof chooses; slots count from 0. kvproof is the worker that copies: it
decides when a transfer lands, for which keys it fails, and when the store is informed.

| call in Python | needed | what it does |
| --- | --- | --- |
"""
OF_STORES = """
A store declares `StoreCan(...)`:

| capability | default | what it says of the store |
| --- | --- | --- |
"""
STORE_CONFIGURATION = """
`open` gets a `StoreConfig`; the fields that it has in common with the configurations of other levels mean nothing here.

| field | default | what it is |
| --- | --- | --- |
"""
STORE_OBSERVATION = """
`observe` returns a `StoreObservation`: {text}
"""
ENCODERS = """
## Caches of encoder outputs

A cache of encoder outputs (`kvproof hunt --level encoder`) has these calls. Requests and contents are numbers that
kvproof chooses. kvproof is the scheduler that asks, and the worker that computes outputs and removes what is reported.

| call in Python | needed | what it does |
| --- | --- | --- |
"""
OF_ENCODERS = """
A cache of encoder outputs declares `EncoderCan(...)`:

| capability | default | what it says of the cache |
| --- | --- | --- |
"""
ENCODER_CONFIGURATION = """
`open` gets an `EncoderConfig`; the fields that it has in common with the configurations of other levels mean nothing.

| field | default | what it is |
| --- | --- | --- |
"""
ENCODER_OBSERVATION = """
`observe` returns an `EncoderObservation`: {text}
"""
PAIRS = """
## Pairs of engines

A pair of engines (`kvproof hunt --level pair`) has these calls. Sides are 0, which computes prompts, and 1, which
generates; requests are numbers that kvproof chooses. kvproof is the users, the router, the model, the network and the
clock. The adapter derives from `PairAdapter` (`kvproof.check.protocol.pair`), makes a `Wire`
(`kvproof.check.protocol.wire`) in `open`, and lets its engines copy and send over it. It has each
call that is not marked as needed.

| call in Python | needed | what it does |
| --- | --- | --- |
"""
OF_PAIRS = """
A pair declares `PairCan(...)`:

| capability | default | what it says of the pair |
| --- | --- | --- |
"""
PAIR_CONFIGURATION = """
`open` gets a `PairConfig`: `block_size`, `num_gpu_blocks` and `caching` as above, and

| field | default | what it is |
| --- | --- | --- |
"""
OWN_OBSERVE = """
An adapter may define `observe` instead of the five, and then returns an `Observation`: {text}
"""


@dataclass(frozen=True)
class AdapterCall:
    """One call of an adapter. needed: "always", the capabilities that need it, or "optional"."""

    name: str
    signature: str
    capabilities: tuple[str, ...]
    sentences: str

    @property
    def needed(self) -> str:
        """When an adapter must define the call, in words."""
        if self.name in ALWAYS:
            return "always"
        return " or ".join(f"`{name}`" for name in self.capabilities) or "optional"


def adapter_calls() -> list[AdapterCall]:
    """Every call that an adapter may define, those first that each one needs."""
    names = dict.fromkeys([*ALWAYS, *NEEDED, *OPTIONAL])
    order = [name for name in [*PIPE, *OBSERVED] if name in names]
    return [_call(name) for name in [*order, *(name for name in names if name not in order)]]


def _call(name: str) -> AdapterCall:
    return AdapterCall(name, signature_of(name), NEEDED.get(name, ()), description_of(name))


def documented_fields(kind: Any) -> dict[str, tuple[str, str]]:
    """The default of each field of a class, and the comment beside it."""
    return {name: (default, comment) for name, default, comment in FIELD.findall(inspect.getsource(kind))}


def call_rows(subject: type, required: RequiredCalls, base: type = object) -> list[str]:
    """One row for each call of a subject that has a protocol of its own. base: of adapters, which has some of them."""
    needs = {call: f"`{capability}`" for capability, _, calls in required.declared for call in calls}
    rows = []
    for name in calls_of(subject):
        call = getattr(subject, name)
        signature = str(inspect.signature(call)).replace("self, ", "").replace("self", "").replace("|", "\\|")
        text = " ".join((inspect.getdoc(call) or "").split())
        is_inherited = "" if hasattr(base, name) else "always"
        rows.append(_row(f"`{name}{MODULES.sub('', signature)}`", needs.get(name, is_inherited), text))
    return rows


def page() -> str:
    """The whole page, as Markdown."""
    calls = {call.name: call for call in adapter_calls()}
    rows = [_call_row(call) for call in calls.values() if call.name not in OBSERVED]
    observed = [_row(f"`{name}`", calls[name].needed, calls[name].sentences) for name in OBSERVED]
    return "".join(
        [
            HEAD,
            CALLS,
            *rows,
            OBSERVATIONS,
            *observed,
            OWN_OBSERVE.format(text=_observation(Observation)),
            CAPABILITIES,
            *_capability_rows(),
            OF_SCHEDULERS,
            *_field_rows(SchedulerCan),
            OF_POOLS,
            *_field_rows(PoolCan),
            CONFIGURATION,
            *(
                _row(f"`{name}`", f"`{default}`", "yes" if name in SENT_TO_PIPE else "", comment)
                for name, (default, comment) in documented_fields(Config).items()
            ),
            STORES,
            *call_rows(StoreSubject, STORE_CALLS, StoreAdapter),
            OF_STORES,
            *_field_rows(StoreCan),
            STORE_CONFIGURATION,
            _row("`num_slots`", f"`{StoreConfig().num_slots}`", "slots of the store"),
            *_field_rows(StoreConfig),
            STORE_OBSERVATION.format(text=_observation(StoreObservation)),
            ENCODERS,
            *call_rows(EncoderSubject, ENCODER_CALLS),
            OF_ENCODERS,
            *_field_rows(EncoderCan),
            ENCODER_CONFIGURATION,
            _row("`num_embeddings`", f"`{EncoderConfig().num_embeddings}`", "embeddings that it has room for"),
            *_field_rows(EncoderConfig),
            ENCODER_OBSERVATION.format(text=_observation(EncoderObservation)),
            PAIRS,
            *call_rows(PairSubject, PAIR_CALLS, PairAdapter),
            *call_rows(MortalPairSubject, PAIR_CALLS),
            OF_PAIRS,
            *_field_rows(PairCan),
            PAIR_CONFIGURATION,
            *_field_rows(PairConfig),
        ]
    )


def _call_row(call: AdapterCall) -> str:
    arguments, answer = PIPE.get(call.name, ("not over a pipe", ""))
    instead = f" Or define `{INSTEAD[call.name]}`, for whole groups or steps." if call.name in INSTEAD else ""
    over_pipe = f"{arguments}; {answer}" if answer else arguments
    signature = call.signature.replace("self, ", "").replace("self", "").replace("|", "\\|")
    return _row(f"`{signature}`", call.needed, over_pipe, f"{call.sentences}{instead}")


def _capability_rows() -> list[str]:
    needs: dict[str, list[str]] = {}
    for call, capabilities in NEEDED.items():
        for capability in capabilities:
            needs.setdefault(capability, []).append(f"`{call}`")
    return [
        _row(f"`{name}`", f"`{default}`", comment, ", ".join(needs.get(name, [])))
        for name, (default, comment) in documented_fields(ManagerCan).items()
    ]


def _field_rows(kind: type) -> list[str]:
    """One row for each field that a class has of its own, with the comment beside it, which says what it is."""
    described = documented_fields(kind).items()
    return [_row(f"`{name}`", f"`{default}`", comment) for name, (default, comment) in described if comment]


def _observation(kind: type) -> str:
    text = " ".join(inspect.getdoc(kind).split("\n\n", 1)[1].split())  # type: ignore[union-attr]
    return PART.sub(lambda found: found[0].replace(f"{found[1]}:", f"`{found[1]}`:"), text)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    print(page(), end="")
