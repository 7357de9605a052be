"""`kvproof subjects`: what can be checked."""

from kvproof.check.runs.errors import error_boundary


def subjects() -> None:
    """List the subjects that `--subject` knows by name."""
    with error_boundary():
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.registry import listed

        console, rows = output(), listed()
        width = max((len(name) for name, _ in rows), default=0)
        for name, sentence in rows:
            say(console, f"{name:<{width}}  {sentence}")
        say(console, f"{'module:factory':<{width}}  your own: a function without arguments that gives a subject")
        say(console, f"{'pipe:COMMAND':<{width}}  your own in any language: a program that answers JSON lines")
