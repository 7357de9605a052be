"""What tells the KV of two equal prompts apart in SGLang: the `extra_key` of a request, and its `cache_salt`.

A caller may give either. `Req.__init__` appends the id of the adapter to the `extra_key`; the class needs the whole
engine, so the statements that do it are taken from the release's own source and run alone. Ids of adapters are texts
of 32 digits: random ones, or from 0.5.12 on, of adapters that the server starts with, made of their names and paths. A
caller may know the id of an adapter, and use it as a key.
"""

import ast
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvproof.check.subjects.loading import EngineError
from kvproof.spec.text.identity import Key

REQUESTS = Path("srt", "managers", "schedule_batch.py")
JOINED, ADAPTER = "extra_key", "lora_id"  # the names in `Req.__init__`


def joining_of(root: Path) -> Callable[[str | None, str | None], str | None]:
    """How a release joins the caller's key and the id of an adapter. root: of its package. Raises EngineError."""
    file = root / REQUESTS
    classes = [one for one in ast.parse(file.read_text("utf-8")).body if isinstance(one, ast.ClassDef)]
    methods = [method for one in classes if one.name == "Req" for method in one.body]
    made = [one for one in methods if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    joining: list[ast.stmt] = [one for method in made for one in method.body if _joins(one)]
    if not joining:
        raise EngineError(
            f"{file}: Req.__init__ does not join {JOINED} and {ADAPTER} any more; kvproof must be adapted"
        )
    code = compile(ast.Module(joining, []), str(file), "exec")

    def joined(key: str | None, adapter: str | None) -> str | None:
        names: dict[str, Any] = {JOINED: key, ADAPTER: adapter}
        exec(code, names)
        answer: str | None = names[JOINED]
        return answer

    return joined


def _joins(statement: ast.stmt) -> bool:
    """Whether a statement gives the key a value that depends on the adapter."""
    names = [one for one in ast.walk(statement) if isinstance(one, ast.Name)]
    is_stored = any(one.id == JOINED and isinstance(one.ctx, ast.Store) for one in names)
    return is_stored and any(one.id == ADAPTER for one in names)


def id_of(text: str) -> str:
    """A text such as the id of an adapter, always the same one for a text."""
    return uuid.uuid5(uuid.NAMESPACE_OID, text).hex


def keys_given(key: Key, has_salts: bool) -> tuple[str | None, str | None, str | None]:
    """What a caller gives: an `extra_key`, a `cache_salt`, and the id of an adapter.

    has_salts: whether the release keeps salts apart. Before, SGLang's front end makes an `extra_key` of them.
    """
    text = None if key.salt is None else id_of(key.salt)
    adapter = id_of(str(key.adapter_id)) if key.adapter_id else None
    is_extra = key.salt is not None and (not has_salts or sum(map(ord, key.salt)) % 2 == 0)
    return (text, None, adapter) if is_extra else (None, text, adapter)
