"""What a prover reads: the translation of the specification to Z3, and the proofs for all sizes it gives."""
