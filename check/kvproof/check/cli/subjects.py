"""`kvproof subjects`: the list of what can be checked."""

from kvproof.check.runs.errors import error_boundary


def subjects() -> None:
    """List the subjects that `--subject` accepts, each with its level. Name a release as NAME==RELEASE."""
    with error_boundary():
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.registry import NAMED

        lines = [(row.name, row.level, "; ".join(filter(None, (row.sentence, row.usage)))) for row in NAMED.values()]
        lines += [
            ("module:factory", "any", "a subject of your own: a function without arguments that returns it"),
            ("pipe:COMMAND", "manager", "a subject of your own in any language: a program that answers JSON lines"),
        ]
        console, width = output(), max(len(name) for name, _, _ in lines)
        for name, level, text in lines:
            say(console, f"{name:<{width}}  {level:<9}  {text}")
