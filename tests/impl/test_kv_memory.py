"""The main memory that the system and the limits of the process leave."""

from pathlib import Path

import pytest

from kvproof.impl import free_bytes, kv_memory

MIB = 1024**2


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 900 MiB available, no control group and no limit on addresses."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 5 kB\nMemAvailable: {900 * 1024} kB\n")
    (tmp_path / "status").write_text(f"VmSize:\t{200 * 1024} kB\n")
    (tmp_path / "cgroup").write_text("")
    (tmp_path / "groups").mkdir()
    monkeypatch.setattr(kv_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(kv_memory, "STATUS", tmp_path / "status")
    monkeypatch.setattr(kv_memory, "OWN_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(kv_memory, "CONTROL_GROUPS", tmp_path / "groups")
    limit_addresses(monkeypatch, None)
    return tmp_path


def limit_addresses(monkeypatch: pytest.MonkeyPatch, num_bytes: int | None) -> None:
    import resource

    limit = resource.RLIM_INFINITY if num_bytes is None else num_bytes
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_without_limits_it_is_what_the_system_has(system: Path) -> None:
    assert free_bytes("cpu") == 900 * MIB


def test_a_group_above_the_process_limits_it_too(system: Path) -> None:
    (system / "cgroup").write_text("0::/pods/one\n")
    group(system / "groups/pods/one", memory__max="max", memory__current=50 * MIB)
    group(system / "groups/pods", memory__max=400 * MIB, memory__current=100 * MIB)
    assert free_bytes("cpu") == 300 * MIB


def test_files_that_a_group_keeps_cached_and_does_not_use_count_as_free(system: Path) -> None:
    (system / "cgroup").write_text("0::/\n")
    stat = f"anon {90 * MIB}\ninactive_file {250 * MIB}\nactive_file 7"
    group(system / "groups", memory__max=400 * MIB, memory__current=395 * MIB, memory__stat=stat)
    assert free_bytes("cpu") == 255 * MIB


def test_groups_of_the_first_version_are_read_where_the_mount_is_the_group(system: Path) -> None:
    (system / "cgroup").write_text("5:cpu:/a\n4:memory:/docker/a\n")
    folder = system / "groups/memory"
    group(folder, memory__limit_in_bytes=300 * MIB, memory__usage_in_bytes=40 * MIB, memory__stat="total_rss 5")
    assert free_bytes("cpu") == 260 * MIB


def test_a_limit_on_addresses_leaves_the_memory_not_mapped_yet(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_addresses(monkeypatch, 350 * MIB)
    assert free_bytes("cpu") == 150 * MIB
    limit_addresses(monkeypatch, 100 * MIB)
    assert free_bytes("cpu") == 0
