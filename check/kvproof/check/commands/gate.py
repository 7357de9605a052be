"""Which scopes a gate searches: as many as a minute allows, each feature in at least one."""

from kvproof.check.scopes import SCOPES, Scope


def _named(*names: str) -> dict[str, Scope]:
    return {name: SCOPES[name] for name in names}


SPECIFICATION_SCOPES = {name: scope for name, scope in SCOPES.items() if scope.level == "rules"}
SUBJECT_SCOPES = _named("tables-4x3x6", "lookahead", "window", "swap", "cache")
HUNTED_SCOPES = {name: scope for name, scope in SCOPES.items() if scope.level == "operations"}
