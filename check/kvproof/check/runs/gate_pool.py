"""Which scopes of a block pool are searched: those that a gate's minute allows, and those of a hunt, which grow."""

from kvproof.check.protocol.scopes import Scope

POOL_SCOPES = {  # blocks x holders, and with a cache x pages
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
