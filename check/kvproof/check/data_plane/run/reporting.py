"""Convert the results of the harness to the data-plane part of the result document."""

from collections.abc import Sequence

from kvproof.check.data_plane.end_to_end.comparing import EndToEndResult
from kvproof.check.data_plane.run.results import CaseResult, CorrectnessResult
from kvproof.reports.data_plane_result import DataPlane, GeneratedWorkload, InjectedFault, MovedCase

ORIGINS_MAX = 16
BYTES, RACE, MAPPING, END_TO_END = "bytes", "race", "mapping", "end to end"


def add_correctness(plane: DataPlane, found: CorrectnessResult) -> None:
    """Add every case, and every fault that was planted into this run of the harness."""
    add_cases(plane, found.cases)
    plane.num_combinations = found.num_combinations
    plane.faults += [InjectedFault(BYTES, one.name, one.is_understood, one.message) for one in found.faults]
    plane.faults += [
        InjectedFault(RACE, one.name, one.has_race == one.found_race, one.message or "no race, as expected")
        for one in found.races
    ]
    plane.faults += [InjectedFault(MAPPING, one.name, bool(one.message), one.message) for one in found.lints]
    plane.notes += found.notes


def add_cases(plane: DataPlane, cases: Sequence[CaseResult]) -> None:
    """Add the cases alone; for a run that was interrupted."""
    plane.cases = [_case(case) for case in cases]


def add_end_to_end(plane: DataPlane, found: EndToEndResult) -> None:
    """Add every workload, and every fault that was planted between the block manager and the bytes."""
    plane.storms = [
        GeneratedWorkload(
            workload.name,
            workload.num_sequences,
            workload.num_tokens,
            workload.num_steps,
            [*map(str, workload.differences), *([workload.refusal] if workload.refusal else [])],
            workload.witness_counts,
        )
        for workload in found.workloads
    ]
    plane.faults += [
        InjectedFault(END_TO_END, one.name, one.is_caught, f"{one.fate.value}: {one.detail}") for one in found.faults
    ]


def _case(case: CaseResult) -> MovedCase:
    finding = case.finding
    return MovedCase(
        executor=case.executor,
        layout=case.layout,
        dtype=case.dtype,
        mapping=case.mapping,
        stream=case.stream,
        status=case.status.value,
        num_pairs=case.num_pairs,
        bytes_moved=case.bytes_moved,
        bytes_proven=case.bytes_proven,
        seconds=round(case.seconds, 6),
        text=case.reason if finding is None else finding.text,
        origins=[] if finding is None else [row.text for row in finding.wrong[:ORIGINS_MAX]],
        histogram={} if finding is None else dict(finding.histogram),
    )
