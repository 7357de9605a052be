"""The proofs as a judge: what is asked, by whom it is answered, which checks it gives, and what is kept of it."""
