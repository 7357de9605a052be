"""The text of a faulty subject that tests write to a file: a fork that forgets to count its references."""

FORGETFUL = """
from kvproof.check.subjects.builtin.manager import BuiltIn

class Forgetful(BuiltIn):
    def fork(self, parent, child):
        super().fork(parent, child)
        for block in self.manager.tables[parent].ids:
            self.manager.refcounts[block] -= 1
"""
