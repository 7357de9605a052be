"""The data plane: is every byte of every block where the mappings of a block manager put it?

Theory of operation. Both pools are filled with words that encode where they were written: pool, layer, key or value,
row, generation (`memory.pattern`). An interpreter applies the mappings to tags instead of bytes, and so computes what
each row must hold (`steps.interpreter`); it shares no code with the code under test. The executor under test moves the
bytes (`executors`). Then every row of both pools, guard rows included, is recomputed from its tag and compared
(`compare`). A wrong word can be decoded, which gives the place where it was written (`compare.diagnosis`).

Before bytes move, the mapping is checked by itself (`steps.linter`). Work on several streams is checked for races from
an event log (`steps.ordering`). In each run the harness must also catch the faults of a catalogue (`faults`) and of the
self-tests in `steps`; otherwise the run proves nothing. `end_to_end` tests the whole chain of an engine, and `speed`
times the executors that moved every byte right.

The entry is `run.correctness.run_correctness`. These modules are imported only where they are needed, as loading torch
takes long.
"""
