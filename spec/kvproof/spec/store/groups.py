"""Groups of layers: which chunks of a prompt a hit of some length needs, and why these are enough.

The layers of a group attend to all tokens, or to those of a sliding window or of a local chunk, or they keep a *state*
that stands for all tokens before it. The KV of a group is kept in chunks of as many tokens as it says; a chunk ends at
the position `stop`. A hit of `boundary` tokens needs, of a group

    with full attention  all chunks up to the boundary;
    with a window        those that the next token, at the position `boundary`, still reads;
    with a state         the state at exactly that boundary.

A look-up may answer that `boundary` tokens are a hit only if every needed chunk of every group is resident, and if the
chunks of each group end at that boundary.
"""

from kvproof.spec.language import function, predicate

# The reach of a group: 0 for full attention, a positive number for a window, a negative one for a state.


@function
def first_needed(boundary: int, reach: int) -> int:
    """The first position that the token at the boundary reads, in a group of that reach."""
    return 0 if reach == 0 else boundary - 1 if reach < 0 else max(0, boundary + 1 - reach)


@predicate
def is_needed(stop: int, boundary: int, reach: int) -> bool:
    """A hit of `boundary` tokens needs the chunk that ends at `stop`, in a group of that reach."""
    return stop == boundary if reach < 0 else first_needed(boundary, reach) < stop and stop <= boundary
