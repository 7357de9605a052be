"""Real engines: bringing in the sources of a release, and importing the one module that is judged."""


class EngineError(Exception):
    """An engine's sources cannot be had or used; one line that says what is wrong and what to do."""
