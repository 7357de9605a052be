"""`kvproof device`: check the data plane of one machine. Also `--device`, which `kvproof verify` shares."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.config import options_to_repeat, place_in
from kvproof.check.cli.device_process import run_apart
from kvproof.check.cli.options import (
    DEFAULT_FOLDER,
    HistoryOption,
    JsonOption,
    OutOption,
    SeedOption,
    seconds_option,
    settled_seed,
)
from kvproof.check.cli.own_process import is_apart, report_work
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.extras import require_extra

TIMING_SECONDS_MAX = 8.0

SIMULATED = "simulated"
Names = tuple[str, ...]
DeviceOption = Annotated[
    str,
    typer.Option("--device", metavar="auto|cpu|cuda", help="Where the blocks lie; auto: CUDA if available."),
]
CheckedDeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda|simulated",
        help="Where the blocks lie; auto: CUDA if available; simulated: a CUDA device simulated in main memory.",
    ),
]
DtypesOption = Annotated[
    list[str] | None,
    typer.Option("--dtype", metavar="NAME", help="Element type; may be repeated. Default: all."),
]
LayoutsOption = Annotated[
    list[str] | None, typer.Option("--layout", metavar="NAME", help="Layout; may be repeated. Default: all.")
]
ExecutorsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--executor",
        metavar="E",
        help="A name, or module:function of your own; may be repeated. Default: all built-in.",
    ),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="The --json of an earlier run, to compare speeds with."),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="NAME",
        help="What the result calls this machine; by default the variable KVPROOF_HOST, or its host name.",
    ),
]


devices = typer.Typer(invoke_without_command=True, subcommand_metavar="[compare FILES]")


@devices.callback()
def device(
    context: typer.Context,
    device: CheckedDeviceOption = "auto",
    dtype: DtypesOption = None,
    layout: LayoutsOption = None,
    executor: ExecutorsOption = None,
    baseline: BaselineOption = None,
    budget: Annotated[
        float | None, seconds_option("--budget", "Time limit for the whole run; without it, every case is run.")
    ] = None,
    label: LabelOption = None,
    seed: SeedOption = None,
    history: HistoryOption = None,
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Check that swaps and copies move the right bytes on this machine, and measure how fast.

    The run compares every byte of both pools after each step, generates text through paged memory, and plants faults
    into itself to show that it detects them. It writes device.html. `kvproof device compare` shows several results side
    by side.
    """
    if context.invoked_subcommand is not None:
        return
    own = [name for name in executor or [] if ":" in name]
    if own and device != "cpu" and not is_apart():
        with error_boundary():
            raise typer.Exit(run_apart(context, own, out, json, history))
    with error_boundary(json, place_in(context)), ExitStack() as simulation:
        from kvproof.check.runs.bandwidth_stage import timing_stage
        from kvproof.check.runs.data_plane_stage import DataPlaneOptions, correctness_stage, generating_stage
        from kvproof.check.runs.history import host_name, require_recordable
        from kvproof.check.runs.run import RunOptions, run_stages
        from kvproof.reports.data_plane_result import DataPlane
        from kvproof.reports.device_baseline import read_baseline

        require_recordable(history)
        if baseline is not None and device == SIMULATED:
            raise UsageError("a simulated device has no speeds to compare with a baseline: leave out --baseline")
        before = read_baseline(baseline) if baseline is not None else None
        chosen, environment, note = settled_device(device, simulation)
        name = "a simulated CUDA device" if device == SIMULATED else chosen
        environment = facts_of_host(chosen, label or host_name()) | environment
        executors, layouts, dtypes = _settled_names(executor or [], layout or [], dtype or [], chosen)
        plane = DataPlane(name, notes=[note] if note else [])
        options = DataPlaneOptions(chosen, executors, layouts, dtypes, report_work=report_work, plane=plane)
        run_options = RunOptions("device", f"the data plane of {name}", settled_seed(seed), budget, out, json)
        run_options.history, run_options.words = history, options_to_repeat(context)
        stages = [
            correctness_stage(options, share=60),
            generating_stage(options, share=15),
        ]
        if device != SIMULATED:
            stages.append(timing_stage(options, 25, TIMING_SECONDS_MAX, before, str(baseline)))
        raise typer.Exit(run_stages(run_options, stages, None, data_plane=plane, environment=environment))


@devices.command(short_help="Show results side by side, and what is out of line.")
def compare(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Result documents or --out folders of `kvproof device`.")
    ],
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the comparison as a page.")] = None,
) -> None:
    """Show the results of several machines or dates side by side, and which one is out of line.

    Exit codes: 0 if nothing is, 1 if a result refutes, 6 if a machine is slower than the others by more than noise, 2
    if a file is no result of a data plane.
    """
    with error_boundary():
        from kvproof.check.runs.store import RESULT, explained
        from kvproof.check.runs.terminal import output, say
        from kvproof.reports.document import read, write_atomically
        from kvproof.reports.hosts import compare_hosts, hosts_page
        from kvproof.reports.result import Result

        paths = [file / RESULT if file.is_dir() else file for file in files]
        found, console = compare_hosts([(str(path), read(path, Result)) for path in paths]), output()
        for column, result in zip(found.columns, found.results, strict=True):
            facts = result.run.host
            machine = facts.get("GPU") or facts.get("processor", "processor not known")
            outcome = result.exit_code().name.lower().replace("_", " ")
            say(console, f"{column}: {machine}, torch {facts.get('torch', 'not known')}: {outcome}")
        for _, line in found.out_of_line:
            say(console, f"out of line: {line}", "bold red")
        for line in found.notes:
            say(console, line, "dim")
        if not found.out_of_line:
            say(console, "Nothing is out of line.")
        if html is not None:
            with explained(html):
                write_atomically(html, hosts_page(found).encode("utf-8", "backslashreplace"), follows_links=True)
            say(console, f"Page: {html}")
        raise typer.Exit(found.exit_code)


def facts_of_host(device: str, label: str) -> dict[str, str]:
    """The name of the machine and what else a comparison of machines needs."""
    import torch

    from kvproof.check.data_plane.device import host_facts

    return host_facts(torch.device(device), label)


def _settled_names(
    executors: list[str], layouts: list[str], dtypes: list[str], device: str
) -> tuple[Names, Names, Names]:
    """The names without duplicates; all built-in executors if none is given. Raises UsageError for an unknown name."""
    from kvproof.check.data_plane.executors import BUILT_IN, named
    from kvproof.check.data_plane.executors.base import own_function
    from kvproof.check.data_plane.executors.isolation import require_function
    from kvproof.check.data_plane.memory.layouts import UnknownSetting, dtype_named, layout_named
    from kvproof.check.hosts.interrupt import interruptible

    try:
        for name in layouts:
            layout_named(name)
        for name in dtypes:
            dtype_named(name)
        for name in executors:
            if named(name).is_own and device == "cpu":
                require_function(name)  # in another process, as the import may crash
            elif named(name).is_own:
                with interruptible():
                    own_function(name)
    except UnknownSetting as error:
        raise UsageError(str(error)) from error
    return tuple(dict.fromkeys(executors or BUILT_IN)), tuple(dict.fromkeys(layouts)), tuple(dict.fromkeys(dtypes))


def require_known_device(asked: str, *more: str) -> None:
    """Raise UsageError unless this is a device, or one of these."""
    known = ("auto", "cpu", "cuda", *more)
    if asked not in known:
        raise UsageError(f"there is no device {asked!r}; --device must be {', '.join(known[:-1])} or {known[-1]}")


def settled_device(asked: str, simulation: ExitStack | None = None) -> tuple[str, dict[str, str], str]:
    """The device to use, facts of the machine for the report, and a note. Raises UsageError.

    simulation: keeps the simulated device until it is closed; None where no device can be simulated.
    """
    require_known_device(asked, *([SIMULATED] if simulation is not None else []))
    require_extra("device", "the data plane")
    from kvproof.check.hosts.interrupt import uninterrupted

    try:
        with uninterrupted():
            import torch
    except ImportError as error:
        raise UsageError(f"torch cannot be imported ({error}); the data plane needs torch 2.11 or newer") from error
    from kvproof.check.data_plane.device import UnfitTorch, environment, require_torch

    try:
        require_torch(torch.__version__)
    except UnfitTorch as error:
        raise UsageError(str(error)) from error
    if asked == SIMULATED and simulation is not None:
        from kvproof.check.data_plane.simulated_cuda import simulated_cuda

        simulation.enter_context(simulated_cuda())
        return "cuda", environment(torch.device("cuda")), "The CUDA device was simulated; no speed was measured."
    has_cuda = torch.cuda.is_available()
    if asked == "cuda" and not has_cuda:
        raise UsageError("torch finds no CUDA device; use --device cpu or --device auto")
    chosen = "cuda" if asked != "cpu" and has_cuda else "cpu"
    note = "There is no CUDA device, so the CPU was used and both pools lay in main memory." if asked == "auto" else ""
    return chosen, environment(torch.device(chosen)), note if chosen == "cpu" else ""
