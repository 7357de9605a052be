"""The pytest regression test that is written beside a counterexample file, ready to be committed with it."""

import re
from pathlib import Path

from kvproof.spec.trace import Trace

TEXT = '''"""A regression test, written by kvproof{version}. Keep it beside {file}.

{story}

It fails with this text while the manager is broken, and passes once it is fixed.
"""

from pathlib import Path

from kvproof.check import assert_fixed


def test_{name}() -> None:
    assert_fixed(Path(__file__).with_name("{file}"))
'''


def path_of_test(path: Path) -> Path:
    """The path of the test that belongs to a counterexample file."""
    return path.with_name(f"test_{_identifier(path.stem)}.py")


def regression_test(trace: Trace, path: Path, story: str) -> str:
    """The source of the test; `story` is the refutation as it is printed."""
    version = f" {trace.version}" if trace.version else ""
    return TEXT.format(version=version, file=path.name, name=_identifier(path.stem), story=_quotable(story))


def _identifier(stem: str) -> str:
    return re.sub(r"\W", "_", stem, flags=re.ASCII)


def _quotable(text: str) -> str:
    """The text as it can stand in a docstring: an engine's message may hold anything."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    text = "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1].replace("\\", "\\\\") for c in text)
    return "\n".join(line.rstrip() for line in text.splitlines())
