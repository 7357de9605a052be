"""Tables that commands print as plain lines."""

from collections.abc import Iterator


def lines_of(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The rows of a table as lines, its columns aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
