"""The threads of HiCache's cache controller, which run only when the adapter says so, each until it waits."""

from contextlib import suppress
from typing import Any

from kvproof.check.subjects.sglang.hicache.machine import Waits


class Threads:
    """The threads of one controller."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller

    def run(self, *threads: str) -> None:
        """Run threads of the controller until each of them waits."""
        for thread in threads:
            if function := getattr(self._controller, thread, None):
                with suppress(Waits):
                    function()

    def answer(self, operation: Any) -> None:
        """The storage says which pages of a prefetch it has; the others wait."""
        buffer = getattr(self._controller, "prefetch_buffer", None)
        self.run_alone("prefetch_queue", [operation], "prefetch_thread_func")
        if buffer is not None and buffer is not self._controller.prefetch_buffer:  # the thread makes one when it begins
            self._controller.prefetch_buffer.queue.extendleft(reversed(buffer.queue))

    def run_alone(self, name: str, operations: list[Any], thread: str) -> None:
        """Run a thread with these operations of its queue only."""
        waiting = getattr(self._controller, name).queue
        mine = [one for one in waiting if one in operations]
        others = [one for one in waiting if one not in operations]
        waiting.clear()
        waiting.extend(mine)
        self.run(thread)
        waiting.extend(others)
