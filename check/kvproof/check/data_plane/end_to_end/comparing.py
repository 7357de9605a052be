"""Compare the tokens of each workload with those of the same model without pages, then plant each fault.

A planted fault must change a token or be refused by a check in the chain.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from kvproof.check.data_plane.end_to_end.engine import Completion, Generated, WorkloadEngine
from kvproof.check.data_plane.end_to_end.exact_decoder import ExactDecoder, Geometry, NoPages, choose
from kvproof.check.data_plane.end_to_end.fault_injection import FAULTS, Fault
from kvproof.check.data_plane.end_to_end.workloads import WORKLOADS, Workload
from kvproof.check.data_plane.speed.stopwatch import one_thread
from kvproof.check.hosts.time_limit import seconds_left
from kvproof.impl import BlockManagerError, KVBlockShape, KVLayout

OnText = Callable[[str], None]


@dataclass(frozen=True)
class TokenDifference:
    """The first token of a sequence that differs from the model without pages. position: index in prompt and output."""

    seq_id: int
    position: int
    expected: int
    actual: int

    def __str__(self) -> str:
        return (
            f"sequence {self.seq_id} has token {self.actual} at position {self.position}, "
            f"where the model without pages generates {self.expected}"
        )


@dataclass
class WorkloadResult:
    """The result of one workload.

    witness_counts: how often each event happened. missing: events that the workload exists for and that never happened.
    refusal: the error of a check in the chain, although no fault was planted; empty if there was none.
    """

    name: str
    num_sequences: int
    num_tokens: int
    num_steps: int
    differences: list[TokenDifference]
    witness_counts: dict[str, int]
    missing: list[str]
    refusal: str = ""

    @property
    def is_right(self) -> bool:
        """Whether every token is right and no request was lost."""
        return not self.reason

    @property
    def reason(self) -> str:
        """The first error, as text; empty if there is none."""
        if self.refusal:
            return f"a check refused a step: {self.refusal}"
        if self.differences:
            return str(self.differences[0])
        return "a request was lost" if self.witness_counts.get("lost") else ""


class Fate(StrEnum):
    """The outcome of a planted fault."""

    CHANGED_TOKENS = "changed tokens"
    REFUSED = "refused"
    MISSED = "missed"
    NOT_REACHED = "not reached"


@dataclass(frozen=True)
class TextFaultOutcome:
    """A planted fault and its outcome. detail: the token or the message that revealed it."""

    name: str
    workload: str
    fate: Fate
    detail: str = ""

    @property
    def is_caught(self) -> bool:
        """Whether it changed tokens or was refused."""
        return self.fate in (Fate.CHANGED_TOKENS, Fate.REFUSED)


@dataclass
class EndToEndResult:
    """The results of workloads and planted faults. is_cut: the time was over before all of them had run."""

    dtype: str
    layout: str
    device: str
    workloads: list[WorkloadResult] = field(default_factory=list)
    faults: list[TextFaultOutcome] = field(default_factory=list)
    is_cut: bool = False

    @property
    def is_right(self) -> bool:
        """Whether paging changed no token."""
        return all(workload.is_right for workload in self.workloads)

    def ends_now(self) -> bool:
        """Whether the time of the run is over; then the result is cut."""
        self.is_cut = seconds_left() <= 0
        return self.is_cut

    @property
    def num_caught(self) -> int:
        return sum(fault.is_caught for fault in self.faults)


def run_end_to_end(
    seed: int,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.bfloat16,
    layout: KVLayout = KVLayout.TWO_PLANES,
    workloads: Iterable[str] = tuple(WORKLOADS),
    faults: Iterable[Fault] = FAULTS,
    on_progress: OnText = lambda what: None,
) -> EndToEndResult:
    """Run the workloads, then plant each fault whose workload was among them.

    workloads: keys of WORKLOADS. on_progress: called with the name of each workload and fault before it runs. What has
    not run when the time of the run (`calls_end_at`) is over is left out.
    """
    names = tuple(workloads)
    result = EndToEndResult(str(dtype).removeprefix("torch."), layout.name, str(device))
    right: dict[str, Generated] = {}
    decoder = _decoder(seed, torch.device(device), layout)
    with one_thread():
        for name in names:
            if result.ends_now():
                return result
            on_progress(f"workload {name}")
            workload_result, right[name] = run_workload(WORKLOADS[name], seed, decoder, dtype, layout)
            result.workloads.append(workload_result)
        for fault in faults:
            if result.ends_now():
                return result
            if fault.subject in right:
                on_progress(f"fault: {fault.id}")
                result.faults.append(plant(fault, right[fault.subject], seed, decoder, dtype, layout))
    return result


def run_workload(
    workload: Workload, seed: int, decoder: ExactDecoder, dtype: torch.dtype, layout: KVLayout
) -> tuple[WorkloadResult, Generated]:
    """Run one workload without a fault, and compare its tokens with the model without pages."""
    engine = WorkloadEngine(workload, decoder, _shape(workload, decoder.geometry, dtype, layout), seed)
    refusal = ""
    try:
        engine.run()
    except BlockManagerError as error:
        refusal = f"{type(error).__name__}: {error}"
    done = engine.done
    differences = [
        found
        for seq_id, completion in done.completions.items()
        if (found := difference(decoder, seq_id, completion)) is not None
    ]
    witness_counts = Counter({name: count for name, count in done.witness_counts.items() if count})
    missing = [name for name in workload.expected if not witness_counts[name]]
    num_tokens = sum(len(completion.tokens) for completion in done.completions.values())
    result = WorkloadResult(
        workload.name,
        len(done.completions),
        num_tokens,
        done.num_steps,
        differences,
        dict(witness_counts),
        missing,
        refusal,
    )
    return result, done


def difference(decoder: ExactDecoder, seq_id: int, completion: Completion) -> TokenDifference | None:
    """The first token that differs from what the model without pages chooses after the same tokens, or None.

    The model computes prompt and output in one pass. All tokens before the first difference are equal, so this is also
    the first difference from the output that the model without pages would generate token by token.
    """
    text, start = [*completion.prompt, *completion.tokens], len(completion.prompt)
    scores = decoder.scores(text, 0, NoPages())
    for index, (actual, salt) in enumerate(zip(completion.tokens, completion.salts, strict=True)):
        expected = choose(scores[start + index - 1], salt)
        if expected != actual:
            return TokenDifference(seq_id, start + index, expected, actual)
    return None


def plant(
    fault: Fault, right: Generated, seed: int, decoder: ExactDecoder, dtype: torch.dtype, layout: KVLayout
) -> TextFaultOutcome:
    """Run the workload of a fault until a token differs from the run without the fault, or a check refuses a step.

    right: what the workload generated without the fault.
    """
    workload = WORKLOADS[fault.subject]
    engine = WorkloadEngine(workload, decoder, _shape(workload, decoder.geometry, dtype, layout), seed, fault)
    try:
        for num_steps, seq_ids in enumerate(engine.steps(), start=1):
            for seq_id in seq_ids:
                expected, actual = right.completions[seq_id], engine.done.completions[seq_id]
                index = len(actual.tokens) - 1
                if expected.tokens[index] != actual.tokens[index]:
                    detail = f"sequence {seq_id}, token {index + 1}, step {num_steps}"
                    return TextFaultOutcome(fault.id, workload.name, Fate.CHANGED_TOKENS, detail)
    except BlockManagerError as error:
        return TextFaultOutcome(fault.id, workload.name, Fate.REFUSED, f"{type(error).__name__}: {error}")
    fate = Fate.MISSED if engine.done.num_changes else Fate.NOT_REACHED
    return TextFaultOutcome(fault.id, workload.name, fate, f"planted {engine.done.num_changes} times")


def _decoder(seed: int, device: torch.device, layout: KVLayout) -> ExactDecoder:
    latent = layout is KVLayout.LATENT
    geometry = Geometry(num_kv_heads=1, head_size=16, latent=True) if latent else Geometry()
    return ExactDecoder(geometry, seed, device)


def _shape(workload: Workload, geometry: Geometry, dtype: torch.dtype, layout: KVLayout) -> KVBlockShape:
    return KVBlockShape(workload.block_size, geometry.num_kv_heads, geometry.head_size, dtype, layout)
