"""Identities: the same tokens after the same prefix have one number, however they are asked for."""

from kvproof.spec.text.identity import Identities, Key


def test_a_prompt_asked_for_at_once_has_the_identities_of_its_tokens_one_by_one() -> None:
    identities = Identities()
    root = identities.root(Key())
    first = identities.after(root, 5)

    along = identities.along(root, [5, 6, 5])

    assert along == [first, identities.after(first, 6), identities.after(along[1], 5)]
    assert len(set(along)) == 3
    assert identities.describe(along[-1]) == "tokens [5, 6, 5]"
    assert identities.along(root, []) == []
