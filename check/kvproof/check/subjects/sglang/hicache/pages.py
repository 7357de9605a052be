"""The pages of HiCache: a key is a page of tokens, and the tokens of a page tell its key."""

from typing import Any

PAGE = 2  # tokens


def tokens_of(keys: list[int]) -> list[int]:
    """The tokens of pages: those of a page tell its key."""
    return [key * PAGE + at for key in keys for at in range(PAGE)]


def ids_of(tokens: Any) -> list[int]:
    """The tokens of a key of the tree, or of a list."""
    return list(getattr(tokens, "token_ids", tokens))


def keys_of(tokens: list[int]) -> list[int]:
    """The pages of tokens, which fill them."""
    return [token // PAGE for token in tokens[::PAGE]]


def pages_of(slots: Any) -> list[int]:
    """The pages of slots of tokens, which lie in pages."""
    pages: list[int] = (slots[::PAGE] // PAGE).tolist()
    return pages
