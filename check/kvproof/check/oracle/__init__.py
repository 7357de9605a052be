"""The judges: they decide whether the specification allows what a subject shows.

`oracle.py` is what the judges of managers, schedulers and pools share; `manager/`, `scheduler/`, `pool.py` and `store/`
are the judges of the four levels. `subject_calls.py` calls a subject. `refinement.py` explains calls by programs of
rules, `firing.py` runs these programs, `ghost_worker.py` executes steps.
"""
