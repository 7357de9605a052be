"""Download the sources of an engine's release, and import only the modules that are judged."""


class EngineError(Exception):
    """The sources of an engine are missing or unusable. The message says in one line what is wrong and what to do."""
