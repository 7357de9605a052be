"""The tokens of a storm against those of the same model without pages, and the planted faults against both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

import torch

from kvproof.check.data_plane.end_to_end.engine import Generated, Spoken, StormEngine
from kvproof.check.data_plane.end_to_end.exact_decoder import ExactDecoder, Geometry, NoPages, choose
from kvproof.check.data_plane.end_to_end.fault_injection import FAULTS, PlantedFault
from kvproof.check.data_plane.end_to_end.workloads import STORMS, Storm
from kvproof.check.data_plane.speed.threads import one_thread
from kvproof.impl import BlockManagerError, KVBlockShape, KVLayout

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Difference:
    """The first token of a sequence that the model without pages would not have said; position in the whole text."""

    seq_id: int
    position: int
    expected: int
    actual: int

    def __str__(self) -> str:
        return (
            f"sequence {self.seq_id} says {self.actual} at position {self.position}, "
            f"where the model without pages says {self.expected}"
        )


@dataclass
class StormResult:
    """One storm: what was compared, what differs, and what it had to meet and did not."""

    name: str
    num_sequences: int
    num_tokens: int
    num_steps: int
    differences: list[Difference]
    met: dict[str, int]
    not_met: list[str]
    refusal: str = ""  # of a check in the chain, where no fault was planted

    @property
    def is_right(self) -> bool:
        """Whether every token is as it should be, and nobody's request was lost."""
        return not self.reason

    @property
    def reason(self) -> str:
        """The first thing that is wrong, or nothing."""
        if self.refusal:
            return f"a check refused a step: {self.refusal}"
        if self.differences:
            return str(self.differences[0])
        return "a request was lost" if self.met.get("lost") else ""


class Fate(str, Enum):
    """What became of a planted fault."""

    CHANGED_TOKENS = "changed tokens"
    REFUSED = "refused"
    MISSED = "missed"
    NOT_REACHED = "not reached"


@dataclass(frozen=True)
class FaultResult:
    """A planted fault and its fate; `detail` says what showed it."""

    name: str
    storm: str
    fate: Fate
    detail: str = ""

    @property
    def is_caught(self) -> bool:
        """Whether it changed tokens or was refused."""
        return self.fate in (Fate.CHANGED_TOKENS, Fate.REFUSED)


@dataclass
class EndToEndResult:
    """Every storm and every planted fault of a run."""

    dtype: str
    layout: str
    device: str
    storms: list[StormResult] = field(default_factory=list)
    faults: list[FaultResult] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Whether paging changed nothing."""
        return all(storm.is_right for storm in self.storms)

    @property
    def num_caught(self) -> int:
        """Planted faults that were caught."""
        return sum(fault.is_caught for fault in self.faults)


def run_end_to_end(
    seed: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.bfloat16,
    layout: KVLayout = KVLayout.TWO_PLANES,
    storms: Iterable[str] = tuple(STORMS),
    faults: Iterable[PlantedFault] = FAULTS,
    on_progress: Progress = lambda what: None,
) -> EndToEndResult:
    """Run the storms, then plant each fault whose storm was among them."""
    names = tuple(storms)
    result = EndToEndResult(str(dtype).removeprefix("torch."), layout.name, str(device))
    right: dict[str, Generated] = {}
    decoder = _decoder(seed, torch.device(device), layout)
    with one_thread():
        for name in names:
            on_progress(f"storm {name}")
            storm_result, right[name] = run_storm(STORMS[name], seed, decoder, dtype, layout)
            result.storms.append(storm_result)
        for fault in faults:
            if fault.storm in right:
                on_progress(f"fault: {fault.name}")
                result.faults.append(plant(fault, right[fault.storm], seed, decoder, dtype, layout))
    return result


def run_storm(
    storm: Storm, seed: int, decoder: ExactDecoder, dtype: torch.dtype, layout: KVLayout
) -> tuple[StormResult, Generated]:
    """One storm with nothing planted, compared with the model without pages."""
    engine = StormEngine(storm, decoder, _shape(storm, decoder.geometry, dtype, layout), seed)
    refusal = ""
    try:
        engine.run()
    except BlockManagerError as error:
        refusal = f"{type(error).__name__}: {error}"
    said = engine.done
    differences = [
        found for seq_id, spoken in said.spoken.items() if (found := difference(decoder, seq_id, spoken)) is not None
    ]
    met = Counter({name: count for name, count in said.met.items() if count})
    not_met = [name for name in storm.expected if not met[name]]
    num_tokens = sum(len(spoken.tokens) for spoken in said.spoken.values())
    result = StormResult(
        storm.name, len(said.spoken), num_tokens, said.num_steps, differences, dict(met), not_met, refusal
    )
    return result, said


def difference(decoder: ExactDecoder, seq_id: int, spoken: Spoken) -> Difference | None:
    """The first token that the model without pages would not have said after the same beginning.

    The text is computed whole and at once. All tokens before the first difference are equal, so it is also the first
    one of a text that the model without pages had written alone.
    """
    text, start = [*spoken.prompt, *spoken.tokens], len(spoken.prompt)
    scores = decoder.scores(text, 0, NoPages())
    for index, (actual, salt) in enumerate(zip(spoken.tokens, spoken.salts, strict=True)):
        expected = choose(scores[start + index - 1], salt)
        if expected != actual:
            return Difference(seq_id, start + index, expected, actual)
    return None


def plant(
    fault: PlantedFault, right: Generated, seed: int, decoder: ExactDecoder, dtype: torch.dtype, layout: KVLayout
) -> FaultResult:
    """Run the fault's storm until it shows: a token that the right run did not say, or a refusal."""
    storm = STORMS[fault.storm]
    engine = StormEngine(storm, decoder, _shape(storm, decoder.geometry, dtype, layout), seed, fault)
    try:
        for num_steps, spoke in enumerate(engine.steps(), start=1):
            for seq_id in spoke:
                expected, actual = right.spoken[seq_id], engine.done.spoken[seq_id]
                index = len(actual.tokens) - 1
                if expected.tokens[index] != actual.tokens[index]:
                    detail = f"sequence {seq_id}, token {index + 1}, step {num_steps}"
                    return FaultResult(fault.name, storm.name, Fate.CHANGED_TOKENS, detail)
    except BlockManagerError as error:
        return FaultResult(fault.name, storm.name, Fate.REFUSED, f"{type(error).__name__}: {error}")
    fate = Fate.MISSED if engine.done.num_struck else Fate.NOT_REACHED
    return FaultResult(fault.name, storm.name, fate, f"{engine.done.num_struck} times planted")


def _decoder(seed: int, device: torch.device, layout: KVLayout) -> ExactDecoder:
    latent = layout is KVLayout.LATENT
    geometry = Geometry(num_kv_heads=1, head_size=16, latent=True) if latent else Geometry()
    return ExactDecoder(geometry, seed, device)


def _shape(storm: Storm, geometry: Geometry, dtype: torch.dtype, layout: KVLayout) -> KVBlockShape:
    return KVBlockShape(storm.block_size, geometry.num_kv_heads, geometry.head_size, dtype, layout)
