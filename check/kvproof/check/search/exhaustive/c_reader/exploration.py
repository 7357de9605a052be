"""Search every reachable state of a scope in C, on several cores."""

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Callable

from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, in_use
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.spec.text.witnesses import WITNESSES

NUM_COUNTS = 256


class Report(ctypes.Structure):
    """What `search` in `search.c` reports."""

    _fields_ = tuple(
        (name, ctypes.c_long)
        for name in "states transitions depth reason finding detail rule worker offset bytes expanded".split()
    )


def run(spec, seconds, max_transitions, workers, memory):
    counts = (ctypes.c_long * NUM_COUNTS)()
    report = Report()
    with in_use:
        spec.prepare()
        ok = spec.library.search(
            workers, ctypes.c_size_t(memory), ctypes.c_double(seconds), ctypes.c_long(max_transitions), counts, ctypes.byref(report)
        )
    return report, counts
