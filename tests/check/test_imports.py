"""Every module can be the first to be imported: no import goes in a circle."""

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
import kvproof.check
names = [module.name for module in pkgutil.walk_packages(kvproof.check.__path__, "kvproof.check.")]
for name in names:
    for loaded in [each for each in sys.modules if each.startswith("kvproof.")]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, error)
"""


def test_every_module_can_be_imported_first() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert done.stdout == ""
