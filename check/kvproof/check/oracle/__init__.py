"""The judges: they decide whether the specification allows what a subject shows.

`oracle.py` is what all judges share; `manager/`, `scheduler/` and `pool.py` are the judges of the three levels.
`refinement.py` explains calls by programs of rules, `firing.py` runs these programs, `ghost_worker.py` executes steps.
"""
