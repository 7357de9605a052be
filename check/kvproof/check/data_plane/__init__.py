"""The data plane: is every byte of every block where the mappings of a block manager put it?

Theory of operation. Both pools are filled with words that say where they were written (`pattern`): pool, layer, key or
value, row, generation. An interpreter of the specification moves tags, not bytes, and so knows what each row must hold
(`interpreter`); it shares no code with what is tested. The executor under test moves the bytes (`executors`). Then
every row of both pools, guard rows included, is recomputed from its tag and compared (`compare`). A word that is wrong
is decoded: it says itself where it comes from (`diagnosis`).

Before anything moves the mapping is linted (`linter`); what runs on several streams is ordered on paper (`ordering`).
The harness has to catch the faults of a catalogue (`faults`, `races`) in the very run that it reports on.

`correctness.run_correctness` is the entry. Nothing here is imported before it is needed, for torch takes long to load.
"""
