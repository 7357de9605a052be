"""Mutants that no judge notices, and why that is no gap: for each the sentence that says so."""

ARGUED: dict[str, str] = {
    "exchange: require(has_entry(state, seq, index) and index <= state.num_full[seq], 'the entry exchanged is full, or"
    " the next tokens fill it', 'cow-copied') -> require(has_entry(state, seq, index), 'the entry exchanged is full, or"
    " the next tokens fill it', 'cow-copied')": "Beyond the tail nothing is known, so any block may stand there:"
    " every obligation is proved without this part, which only forbids what nobody would gain from.",
}
