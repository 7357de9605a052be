"""The published JSON schemas, generated from the classes. `python -m docs.generate.schemas` writes the files."""

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from kvproof.reports.document import NOUNS, SCHEMA_VERSIONS, write_atomically
from kvproof.reports.result import Result
from kvproof.spec.trace import Trace

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "kvproof" / "reports"
FILES: dict[str, type] = {"result.schema.json": Result, "trace.schema.json": Trace}


def schema(kind: type) -> dict[str, Any]:
    """The schema that msgspec derives from the class, plus what reading requires: known fields and a known version."""
    (reference,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for component in components.values():
        if "description" in component:  # Python before 3.13 keeps the indentation of docstrings
            component["description"] = inspect.cleandoc(component["description"])
        if "properties" in component:
            component["additionalProperties"] = False
    version = components[kind.__name__]["properties"]["schema_version"]
    version.update(minimum=1, maximum=SCHEMA_VERSIONS[kind])
    components[kind.__name__]["required"].append("schema_version")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kvproof:{NOUNS[kind]}:{SCHEMA_VERSIONS[kind]}",
        "title": f"A {NOUNS[kind]} of kvproof",
        **reference,
        "$defs": components,
    }


def text(kind: type) -> str:
    """The content of the published schema file."""
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, kind in FILES.items():
        write_atomically(FOLDER / name, text(kind).encode())
