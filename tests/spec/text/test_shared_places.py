"""A shared block is at the same index of the tables, because an identity fixes its position."""

from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.identity import Identities, Key

SIZES = Sizes(num_gpu_blocks=2, num_host_blocks=0, block_size=1, num_seqs=2, num_indexes=2)
CLAIM = "a_block_is_shared_at_one_place_unless_identities_repeat"


def test_an_identity_that_stands_at_two_positions_lets_a_block_be_shared_at_two_places() -> None:
    """The rules take any identities; their caller must not use one identity at two positions."""
    machine = Machine(SIZES)
    state, fire = machine.first_state(), machine.rules
    for firing in (
        fire["admit"](state, 0, 0),
        fire["append"](state, 0, 0, [7], 1),
        fire["promote"](state, 0, 0),
        fire["compute"](state, 0, 1),
        fire["mark_computed"](state, 0),
        fire["admit"](state, 1, 0),
        fire["append"](state, 1, 1, [5], 1),
        fire["compute"](state, 1, 1),
        fire["hit"](state, 1, 0, [7]),
    ):
        assert firing is None
    assert (state.position[0][0], state.position[1][0]) == (0, 1)
    assert machine.broken_claims(state) == []
    state.tokens[1][1] = [6]
    assert CLAIM in machine.broken_claims(state)


def test_no_identity_stands_at_two_positions() -> None:
    identities, length_of = Identities(), dict[int, int]()
    for key in (Key(), Key(salt="x")):
        chains = [[identities.root(key)]]
        for length in range(4):
            for chain in chains:
                assert length_of.setdefault(chain[-1], length) == length
            chains = [[*chain, identities.after(chain[-1], token)] for chain in chains for token in (1, 2)]
    assert len(length_of) == 2 * (1 + 2 + 4 + 8)
