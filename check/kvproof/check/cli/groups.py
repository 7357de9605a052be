"""The commands of `kvproof --help`, in groups: the three that a new user needs stand first."""

from typing import Any

from typer.core import TyperGroup

GROUPS = {
    "Begin with": ("init", "hunt", "verify"),
    "A change, a finding, a release": ("gate", "replay", "bisect", "explore", "campaign"),
    "Results": ("report", "baseline", "compare", "history"),
    "A live server, a machine": ("record", "validate", "watch", "device"),
    "What there is": ("subjects", "engines", "corpus", "examples", "config"),
    "The specification": ("prove", "faults"),
}


class Grouped(TyperGroup):
    """Lists its commands in the groups above."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of their groups."""
        known = super().list_commands(ctx)
        first = [name for names in GROUPS.values() for name in names if name in known]
        return [*first, *(name for name in known if name not in first)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        names = self.list_commands(ctx)
        commands = {name: one for name in names if (one := self.get_command(ctx, name)) and not one.hidden}
        limit = formatter.width - 6 - max(map(len, commands), default=0)
        in_groups = {name for group in GROUPS.values() for name in group}
        others = tuple(name for name in commands if name not in in_groups)
        for title, group in {**GROUPS, "Others": others}.items():
            rows = [(name, commands[name].get_short_help_str(limit)) for name in group if name in commands]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
