"""From the restricted Python of the specification, and from plain integer functions, to terms of a prover."""
