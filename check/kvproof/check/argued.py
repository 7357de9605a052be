"""Mutants that no judge notices, and why that is no gap: for each the sentence that says so."""

ARGUED: dict[str, str] = {
    "exchange: require(has_entry(state, seq, index) and index <= state.num_full[seq], 'the entry exchanged is full, or"
    " the next tokens fill it', 'cow-copied') -> require(has_entry(state, seq, index), 'the entry exchanged is full, or"
    " the next tokens fill it', 'cow-copied')": "Beyond the tail nothing is known, so a reserved entry may be any block:"
    " every obligation is proved without this part. It is there because no manager exchanges such an entry.",
}
