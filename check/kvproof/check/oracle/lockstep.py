"""What searches and reports read of a judge that compares a subject with the specification of block managers."""

from kvproof.check.oracle.enabled import observation_checked
from kvproof.check.oracle.memory import compare_memory
from kvproof.check.oracle.oracle import Oracle


class LockstepJudge:
    """A judge that holds an oracle."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.subject = oracle, oracle.subject
        self.config, self.capabilities = oracle.config, oracle.capabilities
        self.explainer, self.worker, self.state = oracle.explainer, oracle.worker, oracle.state
        self.identities, self.seqs, self.num_seqs_max = oracle.identities, oracle.seqs, oracle.num_seqs_max
        self.coverage, self.notes, self.call = oracle.coverage, oracle.notes, oracle.call

    @property
    def is_sparse(self) -> bool:
        """Whether only what a call was about is compared after it (see `oracle`)."""
        return self.oracle.is_sparse

    @is_sparse.setter
    def is_sparse(self, is_sparse: bool) -> None:
        self.oracle.is_sparse = is_sparse

    @observation_checked
    def compare_all(self, context: str) -> None:
        """Compare every table, refcount, list and slot. Between the calls of a run nothing may have changed."""
        was_sparse, self.is_sparse = self.is_sparse, False
        self.observe_all(context)
        self.oracle.settle(context)
        self.compare_memory()
        self.is_sparse = was_sparse

    def observe_all(self, context: str) -> None:
        """Observe the subject; no table may have changed."""
        self.oracle.observe(context)

    def compare_memory(self) -> None:
        """Between two steps every block holds what was written there."""
        if not self.worker.is_pending:
            compare_memory(self.oracle, ())

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""
        self.oracle.check_observed()
