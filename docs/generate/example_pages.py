"""A history and a comparison of machines with invented figures, for pictures and for the tests of their pages."""

from hashlib import sha256

from kvproof.reports.data_plane_result import Bandwidth, DataPlane, Speed, Spread
from kvproof.reports.device_page import device_page
from kvproof.reports.history import histories
from kvproof.reports.history_page import history_page
from kvproof.reports.hosts import compare_hosts, hosts_page
from kvproof.reports.recorded_run import RecordedRun, RecordedVerdict, RecordedWork, finding_of
from kvproof.reports.result import Check, Result, Run, WitnessCount
from kvproof.spec.verdict import Exit, Verdict

FOUND = finding_of(
    "walker",
    "refcount-exact",
    "fork: refcount of block: the specification says the subject, too small",
    text="block 0",
)
NIGHTS = 14
NIGHTS_WITH_FINDING = {4, 5, 6, 11}
SLOW_NIGHT = 14
MACHINES = {"rack7-1": 41.2, "rack7-2": 40.6, "rack7-3": 25.1, "rack7-4": 40.9}  # GB/s of the engine


def history_example(text: str = FOUND.text) -> str:
    """The page of two weeks of nightly hunts: a finding that comes and goes, one slow night. text: of the finding."""
    found = finding_of(FOUND.judge, FOUND.property, FOUND.signature, text=text)
    return history_page(histories([_night(night, found) for night in range(1, NIGHTS + 1)]))


def _name(text: str) -> str:
    """A name as a hash is one: equal texts have equal names."""
    return sha256(text.encode()).hexdigest()


def _night(night: int, found: Check) -> RecordedRun:
    is_found = night in NIGHTS_WITH_FINDING
    return RecordedRun(
        id=_name(f"run {night}")[:10],
        subject="adapter.py:Adapter",
        command="hunt",
        seed=1,
        effort="normal",
        budget_seconds=None,
        revision=_name(f"commit {night // 4}")[:12],
        version="0.2.0",
        host="builder",
        facts={},
        started=f"2026-11-{night:02d}T02:00:00Z",
        seconds=60.0,
        processor_seconds=170.0 if night == SLOW_NIGHT else 50.0 + night % 3,
        exit_code=Exit.REFUTED if is_found else Exit.OK,
        is_complete=True,
        verdicts=[RecordedVerdict("walker", found.property, Verdict.REFUTED if is_found else Verdict.NOT_REFUTED)],
        findings=[found] if is_found else [],
        work=[RecordedWork("walker", "operations", 500_000), RecordedWork("walker", "runs", 6_900)],
        reached=[WitnessCount("fork", "walker", 4_377), WitnessCount("admit", "walker", 46_706)],
    )


def hosts_example() -> str:
    """The page of four machines, of which one is slower than the others and has another driver."""
    return hosts_page(compare_hosts([_machine(host, speed) for host, speed in MACHINES.items()]))


def device_example() -> str:
    """The page of one of these machines."""
    return device_page(_machine("rack7-1", MACHINES["rack7-1"])[1])


def _machine(host: str, gb_per_second: float) -> tuple[str, Result]:
    speed, one = Spread(gb_per_second, gb_per_second * 0.98, gb_per_second * 1.02), Spread(1, 1, 1)
    plain = Speed("plain copy", "to the GPU", "to the GPU", 0, 64, 128, Spread(50, 49, 51), one, 0.01)
    moves = [
        Speed("engine", mapping, way, 8, 64, 128, speed, one, 0.02)
        for mapping, way in (("swap in", "to the GPU"), ("swap out", "to the host"))
    ]
    speeds = Bandwidth("cuda", "H100", "nhd", "int8", 64, 30, [plain], moves, [], [], 1.0, 0.01)
    driver = "590.2" if host == "rack7-3" else "595.1"
    facts = {"host": host, "driver": driver, "PCIe link": "generation 5 x16", "ECC errors": "0"}
    run = Run("0.2.0", "device", "the data plane of cuda", 1, facts, "2026-11-22T10:00:00Z", is_complete=True)
    check = Check("data plane/swap-mapping/engine", "data plane", "swap-mapping", Verdict.NOT_REFUTED)
    return f"{host}.json", Result(run, [check], data_plane=DataPlane("cuda", bandwidth=speeds))
