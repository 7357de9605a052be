"""The templates of the HTML pages: one file beside this one for each page. What is put into a page is escaped.

A page asks for nothing: it has one script and one style, and a policy that allows this script alone to run.
"""

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPT = "page_script.js"
CODE = re.compile(r"`([^`]+)`")
PLACES = re.compile(r"(?<![/:_])[/:_]+(?=\w)")  # after which a long name may go on in the next line


def render(name: str, filters: dict[str, Callable[..., Any]], **values: Any) -> str:
    """Render a template with these filters and values. Raises jinja2's UndefinedError for a value that is missing."""
    environment = _environment()
    environment.filters |= filters
    return environment.get_template(name).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (folder / SCRIPT).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.filters["breaks"] = lambda text: Markup(PLACES.sub(r"\g<0><wbr>", str(escape(text))))
    environment.filters["code"] = lambda text: Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))
    environment.globals |= {"script": Markup(script), "script_digest": digest}
    return environment
