"""The templates of the HTML pages: one file beside this one for each page. What is put into a page is escaped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def render(name: str, filters: dict[str, Callable[..., Any]], **values: Any) -> str:
    """Render a template with these filters and values. Raises jinja2's UndefinedError for a value that is missing."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= filters
    return environment.get_template(name).render(values)
