"""Hostile executors on the simulated device: there they run in the process of the run, which they can end."""

# ruff: noqa: E501 (a row of a table is one attack)

from dataclasses import replace

from tests.attacks import executors
from tests.attacks.case import REFUTED, UNREACHED, USAGE, replaced
from tests.attacks.executors import at, whole

FILE = executors.FILE
ARGUMENTS = replaced(executors.ARGUMENTS, "--device", "simulated")

RAISED = {
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "a BaseException of its own": "raise type('Mine', (BaseException,), {})('lost')",
    "the end of time": "from kvproof.check.hosts.time_limit import OutOfTime; raise OutOfTime",
    "that it cannot be imported": "from kvproof.check.data_plane.memory.layouts import UnknownSetting; raise UnknownSetting('x')",
    "without text": "raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})",
}
RAISING = [replace(at(f"raises {name}", code, REFUTED), budget=60) for name, code in RAISED.items()]
ATTACKS = [
    *RAISING,
    *(replace(row, name=f"{row.name}, on the device that is there", device="auto", budget=0) for row in RAISING[:3]),
    at("interrupts its process, as the user can", "os.kill(os.getpid(), signal.SIGINT)", UNREACHED),
    whole("raises KeyboardInterrupt at import", "raise KeyboardInterrupt", USAGE, "cannot be imported: KeyboardInterrupt"),
    at("raises SystemExit", "sys.exit('enough')", REFUTED),
    at("ends with 0", "os._exit(0)", REFUTED, "the executor crashed: its process ended with exit code 0"),
    at("ends by SIGSEGV", "ctypes.string_at(0)", REFUTED, "the executor crashed: its process was ended by signal 11 (SIGSEGV)"),
    at("kills its process", "os.kill(os.getpid(), signal.SIGKILL)", REFUTED, "the executor crashed: its process was ended by signal 9 (SIGKILL)"),
    at("writes to every descriptor, and ends", "for number in range(3, 30):\n    try: os.write(number, b'\\xff' * 99)\n    except OSError: pass\nos._exit(0)", REFUTED, "the executor crashed: its process ended with exit code 0"),
    at("starts daemons, and ends", "subprocess.Popen(['sleep', '100'], start_new_session=True); os._exit(0)", REFUTED, "the executor crashed: its process ended with exit code 0"),
    at("exits with a thread that goes on", "threading.Thread(target=time.sleep, args=(100,)).start(); raise RuntimeError('lost')", REFUTED),
    whole("ends at import", "os._exit(0)", USAGE, "the process that imported it ended with exit code 0"),
    whole("atexit ends with 7", "move = lambda caches, moves: 1 / 0\natexit.register(lambda: os._exit(7))", REFUTED),
    whole("is not there", "del move", USAGE),
]  # fmt: skip
