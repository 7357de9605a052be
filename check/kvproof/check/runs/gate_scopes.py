"""The scopes that are searched: by a gate within its minute, each feature in at least one scope; and by a hunt."""

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

# A subject is run again for each transition, so its scopes are smaller than those of the specification.
SUBJECT_SCOPES = {
    "tables-3x2x3": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3),
    "lookahead-3x2x3": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3, lookahead=2),
    "window-3x2x3": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3, block_size=1, window=2),
    "swap-2+2x2x2": Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=2, num_tokens=2, swap=True),
    "cache-2x2x2": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=2, block_size=1, caching=True),
}
# A hunt begins with one sequence: a fault that needs no more has its shortest run there.
ALONE_SCOPES = {
    "window-3x1x3": Scope(num_gpu_blocks=3, num_seqs=1, num_tokens=3, window=2),
    "swap-2+2x1x3": Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=1, num_tokens=3, swap=True),
    "cache-2x1x3": Scope(num_gpu_blocks=2, num_seqs=1, num_tokens=3, caching=True),
}
HUNTED_SCOPES = (
    ALONE_SCOPES
    | SUBJECT_SCOPES
    | {
        "kv-groups-5x2x2": Scope(5, num_tokens=2, block_size=1, window=1, fork=False, kv_groups=("full", "window")),
        "kv-groups-and-cache-6x1x3": Scope(
            6, num_seqs=1, num_tokens=3, block_size=1, caching=True, window=2, fork=False, kv_groups=("full", "window")
        ),
        "tables-3x2x4": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=4),
        "cache-2x2x3": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=3, caching=True),
        "swap-2+2x2x3": Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=2, num_tokens=3, swap=True),
        "cache-and-swap-2+2x2x3": Scope(2, 2, num_seqs=2, num_tokens=3, caching=True, swap=True),
    }
)

# Pools: blocks x holders, and with a cache x pages.
POOL_SCOPES = {
    "blocks-3x3": Scope(num_gpu_blocks=3, num_seqs=3, num_tokens=1),
    "pages-2x2x2": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=2, caching=True),
}
HUNTED_POOL_SCOPES = POOL_SCOPES | {
    "pages-3x2x1": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=1, caching=True),
    "blocks-4x3": Scope(num_gpu_blocks=4, num_seqs=3, num_tokens=1),
    "pages-3x3x1": Scope(num_gpu_blocks=3, num_seqs=3, num_tokens=1, caching=True),
    "pages-3x2x2": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=2, caching=True),
    "pages-4x3x2": Scope(num_gpu_blocks=4, num_seqs=3, num_tokens=2, caching=True),
}

# By the name of the level; a level without an entry is not searched exhaustively.
GATE = {"manager": SUBJECT_SCOPES, "pool": POOL_SCOPES}
HUNT = {"manager": HUNTED_SCOPES, "pool": HUNTED_POOL_SCOPES}
