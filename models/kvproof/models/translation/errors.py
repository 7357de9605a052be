"""The error about text that the translator cannot read."""

import ast
import linecache


class NotInLanguage(Exception):
    """Text outside the language. The message has file and line, what is wrong, and what to write instead."""

    def __init__(self, file: str, node: ast.AST, what: str, instead: str) -> None:
        self.file, self.line = file, getattr(node, "lineno", 0)
        self.what, self.instead = what, instead
        source = linecache.getline(file, self.line).strip() or _unparsed(node)
        super().__init__(f"{file}:{self.line}: {what}\n    {source}\n  {instead}")


def _unparsed(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0] if isinstance(node, (ast.expr, ast.stmt)) else type(node).__name__
