"""The published JSON schemas, made from the classes: `python -m kvproof.reports.schemas` writes them anew."""

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from kvproof.reports.atomic import write_atomically
from kvproof.reports.document import NOUNS, SCHEMA_VERSIONS
from kvproof.reports.result import Result
from kvproof.spec.trace import Trace

FOLDER = Path(__file__).parent
FILES: dict[str, type] = {"result.schema.json": Result, "trace.schema.json": Trace}


def schema(kind: type) -> dict[str, Any]:
    """What msgspec knows of the class, and what reading demands besides: no other fields, a version we know."""
    (reference,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for component in components.values():
        if "description" in component:  # which Python 3.13 already unindents, and older ones do not
            component["description"] = inspect.cleandoc(component["description"])
        if "properties" in component:
            component["additionalProperties"] = False
    version = components[kind.__name__]["properties"]["schema_version"]
    version.update(minimum=1, maximum=SCHEMA_VERSIONS[kind])
    components[kind.__name__]["required"].append("schema_version")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A {NOUNS[kind]} of kvproof",
        **reference,
        "$defs": components,
    }


def text(kind: type) -> str:
    """The schema as the published file has it."""
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, kind in FILES.items():
        write_atomically(FOLDER / name, text(kind).encode())
