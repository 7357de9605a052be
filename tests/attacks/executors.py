"""Hostile executors of the data plane: each moves bytes rightly until it does something else.

`at` runs a piece of Python in every step, before the bytes are moved.
"""

# ruff: noqa: E501 (a row of a table is one attack)

from textwrap import dedent, indent

from tests.attacks.case import ENOUGH_SECONDS, OK, REFUTED, USAGE, Attack

FILE = "mover.py"
ARGUMENTS = (
    *("device", "--device", "cpu", "--executor", f"{FILE}:move", "--seed", "1"),
    *(
        "--layout",
        "nhd",
        "--dtype",
        "float16",
        "--budget",
        f"{ENOUGH_SECONDS:g}",
        "--out",
        "out",
    ),  # 8 s of processor time
)
MOVER = """
import atexit, ctypes, os, signal, subprocess, sys, threading, time
from pathlib import Path
HERE = Path(__file__).parent

def move(caches, moves):
CODE
    for name, source_pool, target_pool, pairs in list(moves.lists()):
        planes = caches.gpu_planes, caches.cpu_planes
        for here, there in zip(planes[source_pool], planes[target_pool]):
            for source, target in pairs:
                there[target].copy_(here[source])
"""


def at(name: str, code: str, exit_code: int | tuple[int, ...], words: str = "") -> Attack:
    """An executor that does something in every step."""
    return Attack(name, MOVER.replace("CODE", indent(dedent(code).strip(), " " * 4)), exit_code, words)


def whole(name: str, code: str, exit_code: int | tuple[int, ...], words: str = "") -> Attack:
    """A module."""
    return Attack(name, MOVER.replace("CODE", "    pass") + dedent(code), exit_code, words)


ATTACKS = [
    at("right", "pass", OK),
    at("moves nothing", "return", REFUTED),
    at("raises", "raise RuntimeError('lost')", REFUTED, "lost"),
    at("raises SystemExit", "sys.exit('enough')", REFUTED),
    at("raises KeyboardInterrupt", "raise KeyboardInterrupt", REFUTED),
    at("raises without text", "raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})", REFUTED),
    at("raises control characters", "raise RuntimeError('\\x1b[2J\\n::error::x')", REFUTED),
    at("ends with 0", "os._exit(0)", REFUTED),
    at("ends by SIGSEGV", "ctypes.string_at(0)", REFUTED),
    at("hangs", "time.sleep(100)", REFUTED),
    at("stops", "os.kill(os.getpid(), signal.SIGSTOP)", REFUTED),
    at("loops", "while True: pass", REFUTED),
    at("writes to every descriptor", "for number in range(3, 30):\n    try: os.write(number, b'\\xff' * 99)\n    except OSError: pass", REFUTED),
    at("forges an answer", "for number in range(3, 30):\n    try: os.write(number, b'{\"nope\":1}\\n')\n    except OSError: pass", REFUTED),
    at("forges a time", "for number in range(3, 30):\n    try: os.write(number, b'{\"seconds\":\"x\"}\\n')\n    except OSError: pass", REFUTED),
    at("shrinks every file", "for number in range(3, 30):\n    try: os.ftruncate(number, 0)\n    except OSError: pass", OK),
    at("writes megabytes", "print('x' * 1_000_000, flush=True)", OK),
    at("starts daemons", "subprocess.Popen(['sleep', '100'], start_new_session=True)", OK),
    at("starts daemons without an environment", "subprocess.Popen(['sleep', '100'], start_new_session=True, env={})", OK),
    at("starts daemons, and ends who would adopt them", "subprocess.Popen(['sleep', '100'], start_new_session=True); os.kill(os.getppid(), signal.SIGKILL)", REFUTED),
    at("starts daemons, and stops who would adopt them", "subprocess.Popen(['sleep', '100'], start_new_session=True); os.kill(os.getppid(), signal.SIGSTOP)", OK),
    at("exits with a thread that goes on", "threading.Thread(target=time.sleep, args=(100,)).start()", OK),
    at("kills its parent's child", "os.killpg(0, signal.SIGKILL)", REFUTED),
    at("clears the lists of tensors that it does not move by", "caches.gpu.clear(); caches.cpu.clear()", OK),
    at("clears the pools", "caches.gpu_planes.clear(); caches.cpu_planes.clear()", REFUTED),
    at("memory", "kept = []\nwhile True: kept.append(bytearray(1 << 28))", REFUTED),
    whole("is no function", "move = 7", USAGE),
    whole("is not there", "del move", USAGE),
    whole("raises at import", "raise RuntimeError('at import')", USAGE),
    whole("ends at import", "os._exit(0)", USAGE, "ended with exit code 0"),
    whole("ends at import after the words of the probe", "for number in range(3, 30):\n    try: os.write(number, b'found')\n    except OSError: pass\nos._exit(5)", USAGE, "ended with exit code 5"),
    whole("fills the pipe at import", "for number in range(3, 30):\n    try: os.set_blocking(number, False); os.write(number, b'x' * (1 << 20))\n    except OSError: pass", USAGE),
    whole("atexit raises", "atexit.register(lambda: 1 / 0)", OK),
]  # fmt: skip
