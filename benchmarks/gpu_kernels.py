"""Compile the operators of engines that move KV blocks, for a GPU machine on which the engines cannot be installed.

    python3 -m benchmarks.gpu_kernels --vllm SOURCES --sglang SOURCES --torch DIR [--include DIR …] --to DIR
    make gpu ENGINES=DIR

A wheel of an engine has hundreds of megabytes. Of the kernels in it, the data plane calls those of one file: vLLM's
`csrc/cache_kernels.cu`, SGLang's `csrc/kvcacheio/transfer.cu`. This program compiles that file, unchanged, from the
sources of a release, and writes a wheel with nothing but its operators. For SGLang it has the release's own Python
module for them, for vLLM functions that pass their arguments on, because vLLM's module imports the whole engine.

SOURCES: the unpacked sources of the release (of SGLang, its folder `sgl-kernel`). DIR of torch: the folder of an
installed or unpacked torch, of the release that the GPU machine has; nothing of it is run here. --include: headers of
CUDA libraries that torch includes, such as cublas_v2.h, if the toolkit beside nvcc lacks them. Needs nvcc, of the CUDA
that the torch is built for.

Exit code 0: the wheels are in DIR. 2: something is missing or does not compile; the compiler says why.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ARCHITECTURE = "sm_90"
PASS_ON = '''"""The operators of vLLM {version} that move blocks: compiled from its sources, without the rest of it."""

from pathlib import Path

import torch

torch.ops.load_library(str(Path(__file__).with_name("operators.so")))


def swap_blocks(src, dst, block_size_in_bytes, block_mapping):
    torch.ops._C_cache_ops.swap_blocks(src, dst, block_size_in_bytes, block_mapping)


def swap_blocks_batch(src_ptrs, dst_ptrs, sizes, is_src_access_order_any=False):
    torch.ops._C_cache_ops.swap_blocks_batch(src_ptrs, dst_ptrs, sizes, is_src_access_order_any)


def reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale):
    torch.ops._C_cache_ops.reshape_and_cache_flash(
        key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale
    )
'''
LOAD = """from pathlib import Path

import torch

torch.ops.load_library(str(Path(__file__).with_name("operators.so")))
"""


class Unbuildable(Exception):
    """The message is for the user."""


@dataclass(frozen=True)
class Engine:
    """How the operators of an engine are compiled.

    namespace: of torch.ops. declared: the header with the declarations of the operators. absent: a header that the file
    includes and does not need, of another project. version: where the release says its number, and how.
    """

    package: str
    namespace: str
    kernels: str
    declared: str
    operators: tuple[str, ...]
    absent: str
    version: tuple[str, str]
    defines: tuple[str, ...] = ()


VLLM = Engine(
    "vllm",
    "_C_cache_ops",
    "csrc/cache_kernels.cu",
    "csrc/cache.h",
    ("swap_blocks", "swap_blocks_batch", "reshape_and_cache_flash"),
    "",
    ("PKG-INFO", r"^Version: (\S+)$"),
    ("-DENABLE_FP8",),
)
SGLANG = Engine(
    "sgl_kernel",
    "sgl_kernel",
    "csrc/kvcacheio/transfer.cu",
    "include/sgl_kernel_ops.h",
    (
        "transfer_kv_per_layer",
        "transfer_kv_per_layer_mla",
        "transfer_kv_all_layer",
        "transfer_kv_all_layer_mla",
        "transfer_kv_direct",
    ),
    "pytorch_extension_utils.h",
    ("pyproject.toml", r'^version = "(\S+)"$'),
)


def binding(engine: Engine, header: str) -> str:
    """The C++ text that makes the operators known to torch, with the declarations of the release.

    Raises Unbuildable if the header does not declare one.
    """
    declarations = []
    for operator in engine.operators:
        found = re.search(rf"^void {operator}\([^;]*\);", header, re.MULTILINE)
        if found is None:
            raise Unbuildable(f"{engine.declared} does not declare {operator}; is this a release that has it?")
        declarations.append(found[0])
    bound = "\n".join(f'  ops.def("{operator}", &{operator});' for operator in engine.operators)
    library = f"TORCH_LIBRARY({engine.namespace}, ops) {{\n{bound}\n}}\n"
    return "\n\n".join(["#include <torch/all.h>\n#include <torch/library.h>", *declarations, library])


def release_of(engine: Engine, sources: Path) -> str:
    """The version of the sources. Raises Unbuildable if they are none of this engine."""
    name, pattern = engine.version
    if not (sources / engine.kernels).is_file():
        raise Unbuildable(f"{sources} has no {engine.kernels}; name the unpacked sources of a release")
    found = re.search(pattern, (sources / name).read_text(), re.MULTILINE) if (sources / name).is_file() else None
    if found is None:
        raise Unbuildable(f"{sources / name} does not say which release this is")
    return found[1]


def build(engine: Engine, sources: Path, torch: Path, include: Sequence[Path], to: Path) -> Path:
    """Compile the operators, and write the wheel. Raises Unbuildable."""
    version = release_of(engine, sources)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "binding.cu").write_text(binding(engine, (sources / engine.declared).read_text()))
        if engine.absent:
            (folder / engine.absent).write_text("#include <torch/all.h>\n")
        folders = [folder, sources / "csrc", sources / "include", *include, torch / "include"]
        folders += [torch / "include/torch/csrc/api/include", Path(sysconfig.get_path("include"))]
        common = ["-O2", "-std=c++17", f"-arch={ARCHITECTURE}", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC"]
        common += [*engine.defines, *(f"-I{one}" for one in folders)]
        objects = []
        for source in (sources / engine.kernels, folder / "binding.cu"):
            objects.append(folder / f"{source.stem}.o")
            _run("nvcc", *common, "-c", str(source), "-o", str(objects[-1]))
        _link(objects, torch / "lib", folder)
        to.mkdir(parents=True, exist_ok=True)
        wheel = to / f"{engine.package}-{version}-py3-none-linux_x86_64.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
            file.write(folder / "operators.so", f"{engine.package}/operators.so")
            about = f"Metadata-Version: 2.1\nName: {engine.package}\nVersion: {version}\n"
            file.writestr(f"{engine.package}-{version}.dist-info/METADATA", about)
            for path, text in _modules(engine, version, sources).items():
                file.writestr(f"{engine.package}/{path}", text)
    return wheel


def _link(objects: Sequence[Path], libraries: Path, folder: Path) -> None:
    """Write operators.so. The driver is linked by its name alone: the toolkit has no driver, and a GPU machine has."""
    (folder / "empty.cu").write_text("")
    driver = folder / "libcuda.so"
    _run("nvcc", "-shared", str(folder / "empty.cu"), "-Xlinker", "-soname=libcuda.so.1", "-o", str(driver))
    names = [f"-l{name}" for name in ("torch", "torch_cpu", "torch_cuda", "c10", "c10_cuda", "cuda")]
    options = ["-Xlinker", "--no-as-needed", f"-L{libraries}", f"-L{folder}", *names]
    _run("nvcc", "-shared", *map(str, objects), *options, "-o", str(folder / "operators.so"))


def _modules(engine: Engine, version: str, sources: Path) -> dict[str, str]:
    if engine is VLLM:
        return {"__init__.py": "", "_custom_ops.py": PASS_ON.format(version=version)}
    return {"__init__.py": LOAD, "kvcacheio.py": (sources / "python/sgl_kernel/kvcacheio.py").read_text()}


def _run(*command: str) -> None:
    try:
        code = subprocess.run(command).returncode
    except FileNotFoundError:
        raise Unbuildable(f"{command[0]} is not installed; it is part of CUDA's toolkit") from None
    if code:
        raise Unbuildable(f"{command[0]} failed; it says why above")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks.gpu_kernels", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--vllm", type=Path, metavar="SOURCES")
    parser.add_argument("--sglang", type=Path, metavar="SOURCES")
    parser.add_argument(
        "--torch", type=Path, required=True, metavar="DIR", help="the folder torch of an installed torch"
    )
    parser.add_argument("--include", type=Path, nargs="*", default=[], metavar="DIR")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR")
    asked = parser.parse_args(arguments)
    chosen = [(engine, path) for engine, path in ((VLLM, asked.vllm), (SGLANG, asked.sglang)) if path is not None]
    if not chosen:
        parser.error("name the sources of an engine: --vllm or --sglang")
    try:
        for engine, sources in chosen:
            wheel = build(engine, sources.resolve(), asked.torch.resolve(), asked.include, asked.to)
            print(f"{wheel}: {wheel.stat().st_size / 2**20:.1f} MB")
    except Unbuildable as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
