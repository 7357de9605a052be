"""The search of the specification in C: what is tried (`calls.c`), how it is searched (`search.c`), and its use."""
