"""The judge of stores, and what searches and reports read of it."""

from kvproof.check.oracle.enabled import RuledJudge
from kvproof.check.oracle.store.ending import EndJudge
from kvproof.check.oracle.store.loading import LoadingJudge
from kvproof.check.oracle.store.looking_up import LookUpJudge
from kvproof.check.oracle.store.oracle import StoreOracle
from kvproof.check.oracle.store.storing import StoringJudge
from kvproof.check.protocol.store import StoreConfig, StoreObservation, StoreOperation, StoreSubject


class StoreJudge(RuledJudge):
    """One opened store in lockstep with the specification."""

    kinds = StoreOperation.kinds()
    config: StoreConfig

    def __init__(self, subject: StoreSubject, config: StoreConfig, identities: object = None) -> None:
        self.store = store = StoreOracle(subject, config)
        self.subject, self.config, self.capabilities = subject, config, store.capabilities
        self.coverage, self.notes, self.explained = store.coverage, store.notes, store.explained
        self.requests, self.transfers, self.used, self.memory = (
            store.requests,
            store.transfers,
            store.used,
            store.memory,
        )
        self.moving, self.landed, self.loadable = store.moving, store.landed, store.loadable
        storing = StoringJudge(store)
        super().__init__(store.reply, LookUpJudge(store), storing, LoadingJudge(store), EndJudge(store, storing))

    @property
    def observed(self) -> StoreObservation:
        """What the store showed last."""
        return self.store.observed

    @property
    def is_sparse(self) -> bool:
        """Whether only the count of free slots is compared after a call."""
        return self.store.is_sparse

    @is_sparse.setter
    def is_sparse(self, is_sparse: bool) -> None:
        self.store.is_sparse = is_sparse

    def compare_all(self, context: str) -> None:
        """Compare everything that the store shows."""
        self.store.compare_all(context)

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""
        self.store.check_observed()
