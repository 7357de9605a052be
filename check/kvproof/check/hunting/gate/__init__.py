"""`kvproof gate`: what a change adds, repairs and leaves of the findings of a subject that lies in a git repository.

The state before the change is copied out of the repository, and hunted. The state after it is hunted with the same
seed and effort, and with the first result as its baseline. So what is refuted in both is left, what is refuted only
after the change is added by it, and what was refuted before and is not any more is repaired. What the first hunt has
saved is replayed after the change, so that *repaired* does not depend on what the second one draws.
"""
