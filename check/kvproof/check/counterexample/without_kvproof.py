"""The classes of a file that imports kvproof, without what needs kvproof: a manager often stands beside its adapter."""

import ast
from pathlib import Path

KVPROOF = "kvproof"


def imports_kvproof(file: Path, seen: tuple[Path, ...] = ()) -> bool:
    """Whether the file, or one beside it that it imports, imports kvproof."""
    tree = _tree(file)
    if tree is None or file in seen:
        return False
    for module in _imported(tree):
        beside = file.with_name(f"{module}.py")
        if module == KVPROOF or (beside.is_file() and imports_kvproof(beside, (*seen, file))):
            return True
    return False


def definitions(file: Path, wanted: set[str]) -> list[str]:
    """The lines that define these names of a file, with what they need of it and of files beside it.

    Raises ValueError with the reason if they need kvproof.
    """
    return _Slice(file).lines(wanted)


def _tree(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def _imported(tree: ast.Module) -> set[str]:
    """The packages that a module imports anywhere."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


class _Slice:
    def __init__(self, file: Path) -> None:
        self.file, self.source = file, file.read_text(encoding="utf-8").splitlines()
        self.by_name: dict[str, ast.stmt] = {}
        for node in ast.parse("\n".join(self.source)).body:
            for name in _defines(node):
                self.by_name.setdefault(name, node)

    def lines(self, wanted: set[str]) -> list[str]:
        needed, left = set[int](), sorted(wanted)
        attributes: dict[str, set[str]] = {}
        while left:
            node = self.by_name.get(left.pop())
            if node is None or id(node) in needed:
                continue
            needed.add(id(node))
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                    attributes.setdefault(part.value.id, set()).add(part.attr)
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                    left.append(part.id)
        found: list[str] = []
        for node in dict.fromkeys(self.by_name.values()):
            if id(node) in needed:
                found += self._statement(node, attributes)
        return found

    def _statement(self, node: ast.stmt, attributes: dict[str, set[str]]) -> list[str]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return [line for alias in node.names for line in self._import(node, alias, attributes)]
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        text = self.source[first - 1 : node.end_lineno]
        is_long = isinstance(node, ast.ClassDef | ast.FunctionDef)
        return ["", "", *text, "", ""] if is_long else text

    def _import(
        self, node: ast.Import | ast.ImportFrom, alias: ast.alias, attributes: dict[str, set[str]]
    ) -> list[str]:
        module = alias.name if isinstance(node, ast.Import) else node.module or ""
        name, beside = alias.asname or alias.name, self.file.with_name(f"{module}.py")
        if module.partition(".")[0] == KVPROOF:
            raise ValueError(f"{name} of {module}, which {self.file.name} uses in the manager")
        if not (beside.is_file() and imports_kvproof(beside)):
            return [ast.unparse(type(node)(**{**vars(node), "names": [alias]}))]
        if isinstance(node, ast.ImportFrom):
            return [*definitions(beside, {alias.name}), *([f"{name} = {alias.name}"] if name != alias.name else [])]
        used = sorted(attributes.get(name, ()))
        listed = ", ".join(f"{one}={one}" for one in used)
        return [*definitions(beside, set(used)), f"{name} = SimpleNamespace({listed})  # of {beside.name}"]


def _defines(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        case ast.Assign():
            return [one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []
