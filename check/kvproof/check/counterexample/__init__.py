"""A counterexample as a file: its schema, its steps as text, its frames, its regression test, its bisection."""
