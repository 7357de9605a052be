"""The scopes of the specification that a gate searches within its minute: each feature in at least one of them."""

from kvproof.check.protocol.scopes import SCOPES, Scope

# Together they fire every rule and meet every witness of the specification; what does not is reported.
SPECIFICATION_SCOPES = {name: SCOPES[name] for name in ("tables-5x3x8", "lookahead", "swap", "cache")} | {
    "window": Scope(4, num_seqs=3, num_tokens=4, window=2),
    "window-and-cache": Scope(2, num_seqs=2, num_tokens=3, block_size=1, caching=True, window=2, fork=False),
    "cache-and-swap": Scope(2, 2, num_seqs=2, num_tokens=1, block_size=1, caching=True, swap=True),
    "flights": SCOPES["flights"],
    "transfers": SCOPES["transfers"],
    "rules-flights": Scope(
        2, num_seqs=1, num_tokens=1, block_size=1, caching=True, fork=False, num_flights=1, level="rules"
    ),
    "rules-lookahead": SCOPES["rules-lookahead"],
    "rules-cache": SCOPES["rules-cache"],
    "rules-window": Scope(3, num_seqs=2, num_tokens=2, block_size=1, window=1, level="rules"),
    "rules-swap": Scope(2, 2, num_seqs=2, num_tokens=1, block_size=1, swap=True, level="rules"),
    "rules-window-and-swap": Scope(2, 2, num_seqs=1, num_tokens=2, block_size=1, window=1, swap=True, level="rules"),
}
