"""`make gpu` takes each of its branches: stages that pass, fail or hang, and machines that lack something."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.gpu import FAILED, LATE, LEFT_OUT, NOT_RUN, PASSED, UNDECIDED, Stage, check

from benchmarks import gpu, gpu_wheels

ENVIRONMENT = dict(os.environ)


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-S", "-c", code


def stage(
    name: str, code: str = "print('done')", seconds_max: int = 20, needs: str = "", on_gpu: bool = False
) -> Stage:
    return Stage(name, f"what {name} shows", python(code), seconds_max, needs, on_gpu)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, str]]]:
    """Run these stages, and return the exit code and the status of each stage in the stored summary."""

    def check_with(*planned: Stage, device: str = "cuda", is_resumed: bool = False) -> tuple[int, dict[str, str]]:
        monkeypatch.setattr(gpu, "stages", lambda device, out: list(planned))
        code = check(device, tmp_path, ENVIRONMENT, is_resumed=is_resumed)
        return code, {one["stage"]: one["status"] for one in json.loads((tmp_path / "summary.json").read_text())}

    return check_with


def test_all_stages_pass_and_the_summary_says_so(run: Callable[..., object], tmp_path: Path) -> None:
    assert run(stage("bytes"), stage("speeds")) == (0, {"bytes": PASSED, "speeds": PASSED})
    page = (tmp_path / "summary.md").read_text()
    assert "| bytes | what bytes shows | passed |" in page
    assert "Every stage was run." in page


def test_a_stage_that_fails_does_not_stop_the_others(run: Callable[..., object], tmp_path: Path) -> None:
    wrong = stage("bytes", "print('wrong bytes | here'); raise SystemExit(1)")
    assert run(wrong, stage("speeds")) == (1, {"bytes": FAILED, "speeds": PASSED})
    assert "wrong bytes \\| here (exit code 1)" in (tmp_path / "summary.md").read_text()


def test_a_run_of_kvproof_that_decided_too_little_is_no_failure(run: Callable[..., object]) -> None:
    ended = python("raise SystemExit(4)")
    planned = Stage("bytes", "bytes", ended, 20, is_kvproof=True), Stage("tests", "tests", ended, 20)
    assert run(planned[0]) == (4, {"bytes": UNDECIDED})
    assert run(*planned) == (1, {"bytes": UNDECIDED, "tests": FAILED})


def test_a_stage_that_hangs_is_killed_with_the_processes_that_it_started(
    run: Callable[..., object], tmp_path: Path
) -> None:
    started = tmp_path / "started"
    child = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    hangs = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {child!r}])"
    assert run(stage("bytes", hangs, seconds_max=1), stage("speeds")) == (4, {"bytes": LATE, "speeds": PASSED})
    assert "- bytes: what bytes shows" in (tmp_path / "summary.md").read_text()
    deadline = time.monotonic() + 5
    while _is_running(int(started.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _is_running(int(started.read_text()))


def _is_running(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_without_a_program_that_it_needs_a_stage_is_not_run(run: Callable[..., object], tmp_path: Path) -> None:
    planned = stage("memory", needs="no-such-sanitizer"), stage("other", needs=sys.executable)
    assert run(*planned) == (4, {"memory": NOT_RUN, "other": PASSED})
    assert "no-such-sanitizer is not installed" in (tmp_path / "summary.md").read_text()


def test_what_says_nothing_about_a_simulated_device_is_left_out(run: Callable[..., object], tmp_path: Path) -> None:
    planned = stage("bytes"), stage("speeds", on_gpu=True)
    assert run(*planned, device="simulated") == (0, {"bytes": PASSED, "speeds": LEFT_OUT})
    page = (tmp_path / "summary.md").read_text()
    assert page.startswith("# The data plane on a simulated device")
    assert "Never run to its end:\n- speeds: what speeds shows" in page


def test_a_run_that_was_interrupted_is_continued(
    run: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    counted = stage("bytes", f"open({str(ran)!r}, 'a').write('x')")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(gpu, "shutil", type("", (), {"which": staticmethod(interrupt)}))
        with pytest.raises(KeyboardInterrupt):
            run(counted, stage("memory", needs="true"))
    assert run(counted, stage("memory"), is_resumed=True) == (0, {"bytes": PASSED, "memory": PASSED})
    assert ran.read_text() == "x"
    run(counted, stage("memory"))
    assert ran.read_text() == "xx"


def wheel(folder: Path, name: str, module: str) -> None:
    with zipfile.ZipFile(folder / name, "w") as file:
        file.writestr(f"{module}.py", "")


@pytest.fixture
def carried(tmp_path: Path) -> Path:
    """A folder of carried wheels with the list of their hashes."""
    folder = tmp_path / "carried"
    folder.mkdir()
    wheel(folder, "one-1-py3-none-any.whl", "one")
    wheel(folder, "two-1-cp39-cp39-manylinux_2_17_x86_64.whl", "two")
    lines = [f"{gpu_wheels.digest_of(one)} {one.name}\n" for one in sorted(folder.glob("*.whl"))]
    (folder / gpu_wheels.HASHES).write_text("".join(lines))
    return folder


def test_carried_wheels_that_fit_this_python_are_unpacked(carried: Path, tmp_path: Path) -> None:
    engines = tmp_path / "engines"
    engines.mkdir()
    wheel(engines, "sgl_kernel-1-py3-none-any.whl", "sgl_kernel")
    environment = gpu.prepared(carried, tmp_path / "packages", engines)
    assert [one.stem for one in (tmp_path / "packages").glob("*.py")] == ["one"]
    assert [one.stem for one in (tmp_path / "engines").glob("*.py")] == ["sgl_kernel"]
    assert environment["PYTHONPATH"].endswith(str(tmp_path / "packages"))


def test_only_the_stage_of_the_kernels_can_import_the_engines(run: Callable[..., object], tmp_path: Path) -> None:
    looked = "import os; raise SystemExit('engines' not in os.environ['PYTHONPATH'])"
    kernels = Stage("kernels", "their kernels", python(looked), 20, needs_engines=True)
    assert run(kernels, stage("bytes", looked)) == (1, {"bytes": FAILED})
    (tmp_path / "engines/vllm").mkdir(parents=True)
    assert run(kernels, stage("bytes", looked)) == (1, {"kernels": PASSED, "bytes": FAILED})


def test_only_the_kernels_that_are_given_are_run(tmp_path: Path) -> None:
    (tmp_path / "engines/sgl_kernel").mkdir(parents=True)
    (planned,) = (one for one in gpu.stages("cuda", tmp_path) if one.needs_engines)
    assert [one for before, one in pairwise(planned.command) if before == "--executor"] == ["sglang"]
    assert planned.shows.endswith(": sglang")


def test_all_results_are_in_one_archive_after_each_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, archive = tmp_path / "out", tmp_path / "results.tar.gz"
    (out / "packages").mkdir(parents=True)
    seen = f"import tarfile; print(tarfile.open({str(archive)!r}).getnames())"
    monkeypatch.setattr(gpu, "stages", lambda device, out: [stage("bytes"), stage("speeds", seen)])
    assert check("cuda", out, ENVIRONMENT, archive=archive) == 0
    assert (out / "speeds.log").read_text() == "['bytes.log', 'summary.json', 'summary.md']\n"
    with tarfile.open(archive) as file:
        assert file.getnames() == ["bytes.log", "speeds.log", "summary.json", "summary.md"]


def test_a_wheel_is_for_the_pythons_that_its_name_says() -> None:
    assert gpu_wheels.fits("a-1-cp311-cp311-manylinux_2_17_x86_64.whl", "cp311")
    assert not gpu_wheels.fits("a-1-cp311-cp311-manylinux_2_17_x86_64.whl", "cp312")
    assert gpu_wheels.fits("a-1-cp39-abi3-manylinux_2_17_x86_64.whl", "cp312")
    assert not gpu_wheels.fits("a-1-cp313-abi3-manylinux_2_17_x86_64.whl", "cp312")
    assert gpu_wheels.fits("a-1-py2.py3-none-any.whl", "cp310")


def main(carried: Path, tmp_path: Path, device: str = "simulated") -> int:
    return gpu.main(["--device", device, "--carried", str(carried), "--out", str(tmp_path / "out")])


def test_a_carried_wheel_that_is_missing_or_damaged_is_named(
    carried: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (carried / "one-1-py3-none-any.whl").open("ab") as file:
        file.write(b"x")
    assert main(carried, tmp_path) == 2
    assert "one-1-py3-none-any.whl is not the file that" in capsys.readouterr().err
    (carried / "one-1-py3-none-any.whl").unlink()
    assert main(carried, tmp_path) == 2
    assert "one-1-py3-none-any.whl is missing" in capsys.readouterr().err


def test_a_machine_without_a_gpu_or_without_the_packages_is_refused(
    carried: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "NO_DEVICE", "raise SystemExit(1)")
    assert main(carried, tmp_path, "cuda") == 2
    assert "no torch that finds a CUDA device" in capsys.readouterr().err
    monkeypatch.setattr(gpu, "HAS_PACKAGES", "import no_such_package")
    assert main(carried, tmp_path) == 2
    assert "No module named 'no_such_package'); run make gpu-carry" in capsys.readouterr().err


def test_a_full_disk_is_reported_and_an_interrupt_says_how_to_go_on(
    carried: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "HAS_PACKAGES", "")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu, "check", full)
    assert main(carried, tmp_path) == 2
    assert "cannot be stored in" in capsys.readouterr().err
    monkeypatch.setattr(gpu, "check", interrupted)
    assert main(carried, tmp_path) == 130
    assert "make gpu RESUME=1 runs the rest" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "simulated"])
def test_on_a_gpu_all_limits_together_are_less_than_nine_minutes(device: str, tmp_path: Path) -> None:
    planned = gpu.stages(device, tmp_path)
    assert len({one.name for one in planned}) == len(planned)
    if device == "cuda":
        assert sum(one.seconds_max for one in planned) < 540
    for one in planned:  # a time limit of the run itself ends it before its stage is killed
        if "--budget" in one.command:
            assert int(one.command[one.command.index("--budget") + 1]) < one.seconds_max
        assert ("--budget" in one.command) == (device == "cuda" and "--seed" in one.command)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_whole_run_on_a_simulated_device_passes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert gpu.main(["--device", "simulated", "--carried", str(tmp_path / "nothing"), "--out", str(out)]) == 0
    found = {one["stage"]: one["status"] for one in json.loads((out / "summary.json").read_text())}
    assert {name for name, status in found.items() if status == PASSED} == {
        "device-1",
        "operators",
        "tests",
        "device-2",
    }
