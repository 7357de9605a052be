"""The wanted speeds of kvproof's own engine and comparison in main memory, on one core.

All are ratios: to plain copies of as many bytes in the same rounds, or of one executor to another. The slowest mapping
of a kind decides. A missed goal is a line in every report; it changes no verdict, as no byte is wrong.
"""

from collections.abc import Iterable

from kvproof.reports.data_plane_result import Bandwidth, Speed, SpeedGoal

ENGINE, GATHER = "engine", "index-copy"
MEMCMP_MIN, TORCH_MIN = 0.9, 0.5
RUNS_MIN, SCATTERED_MIN, SCATTERED_BYTES_MIN = 0.7, 0.5, 32 * 1024
GATHER_TIMES, LARGE = 3.0, "large"


def goals(speeds: Bandwidth, plane_bytes: int) -> list[SpeedGoal]:
    """All goals; none on a GPU. plane_bytes: the contiguous bytes of one block and layer."""
    if speeds.device != "cpu":
        return []
    mine = [one for one in speeds.moves if one.name == ENGINE]
    runs, scattered = ([one for one in mine if f", {order}" in one.mapping] for order in ("in a row", "scattered"))
    is_sized = plane_bytes >= SCATTERED_BYTES_MIN
    small = f"not measured: blocks of {plane_bytes / 1024:g} KiB; the goal is for 32 KiB and more"
    gather = {one.mapping: one for one in speeds.moves if one.name == GATHER}
    return [
        _of_plain_copy("comparing, with memcmp", MEMCMP_MIN, _named(speeds.verification, "memcmp")),
        _of_plain_copy("comparing, with torch alone", TORCH_MIN, _named(speeds.verification, "torch")),
        _of_plain_copy("engine, blocks in a row", RUNS_MIN, runs),
        _of_plain_copy("engine, scattered blocks", SCATTERED_MIN, scattered)
        if is_sized
        else SpeedGoal("engine, scattered blocks", f"{SCATTERED_MIN:g} of a plain copy", small, None),
        _of_gather([(one, gather[one.mapping]) for one in mine if LARGE in one.mapping and one.mapping in gather]),
    ]


def _named(speeds: Iterable[Speed], name: str) -> list[Speed]:
    return [one for one in speeds if one.name == name]


def _of_plain_copy(name: str, wanted: float, speeds: list[Speed]) -> SpeedGoal:
    return _goal(name, f"{wanted:g} of a plain copy", wanted, [(one.ratio.median, one) for one in speeds])


def _of_gather(pairs: list[tuple[Speed, Speed]]) -> SpeedGoal:
    times = [(mine.ratio.median / its.ratio.median, mine) for mine, its in pairs]
    return _goal("engine, large calls", f"{GATHER_TIMES:g} times {GATHER}", GATHER_TIMES, times)


def _goal(name: str, wanted_text: str, wanted: float, found: list[tuple[float, Speed]]) -> SpeedGoal:
    if not found:
        return SpeedGoal(name, wanted_text, "not measured", None)
    least, slowest = min(found, key=lambda one: one[0])
    megabytes = slowest.payload_bytes / 2**20
    text = f"{least:.2f}, {slowest.mapping}, {megabytes:.3g} MiB a call"
    return SpeedGoal(name, wanted_text, text, least >= wanted)
