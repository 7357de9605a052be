"""The terms that are given to the solvers, evaluated under native states and compared with native runs."""
