"""The judge of KV stores: drives a store and the specification of stores in lockstep.

The judge is the worker of the store. It keeps the transfers and the bytes: one number for each slot, the key whose
content was written there when a store landed. It decides when a transfer lands, for which keys it fails, and when the
store is informed, in any order. The specification (`kvproof.spec.store`) has one flight and one pin for each key of a
transfer; its owner is the transfer. What a call answered is explained by rules of the specification, and what the store
then shows must be what the specification has: `rules` fires, `judge` has the operations, and draws.
"""
