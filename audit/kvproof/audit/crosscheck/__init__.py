"""The translator and the C reader of the specification, compared with native runs value by value."""
