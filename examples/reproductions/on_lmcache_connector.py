"""The scheduler's half of the connector to a server of LMCache, in vLLM and in LMCache, without the server.

`Server` has every chunk of every prompt, holds a lock on those that were looked up, and says which of them are still
held. A block has two tokens, and a chunk is a block. Newer releases of vLLM take the connector of an LMCache that is
installed, unless LMCACHE_USE_UPSTREAM_MP is set.
"""

import os
from typing import Any

from on_any_engine import StandIn, nothing
from on_stub_modules import import_modules

BLOCK_SIZE = 2
LOGGER = StandIn(debug=nothing, info=nothing, warning=nothing)
STAND_INS: dict[str, dict[str, Any]] = {
    "integration.vllm.utils": {
        "extract_mm_features": lambda request: ([], []),
        "extract_request_configs_from_request": nothing,
    },
    "utils": {"init_logger": lambda name: LOGGER},
    "v1.utils": {"ConstantList": list},
}


class Server:
    """What the connector sees of a server of LMCache. held: a lock for each chunk, by salt and number of the chunk."""

    lmcache_tokens_per_chunk = BLOCK_SIZE
    cleanup_lookup_result = staticmethod(nothing)

    def __init__(self) -> None:
        self.held, self.found = set[tuple[str, int]](), 0

    def num_blocks_per_chunk(self) -> int:
        """Blocks of a chunk."""
        return 1

    def maybe_submit_lookup_request(
        self, request_id: str, token_ids: list[int], cache_salt: str = "", **more: Any
    ) -> None:
        """Look a prompt up, and lock what is found: all of its whole chunks."""
        self.found = len(token_ids) // BLOCK_SIZE
        self.held = {(cache_salt, chunk) for chunk in range(self.found)}

    def check_lookup_result(self, request_id: str) -> int:
        """How many tokens were found."""
        return self.found * BLOCK_SIZE

    def free_lookup_locks(
        self, token_ids: list[int], start: int, end: int, request_id: str, cache_salt: str = "", **more: Any
    ) -> None:
        """Release the chunks between two tokens."""
        self.held -= {(cache_salt, chunk) for chunk in range(start // BLOCK_SIZE, end // BLOCK_SIZE)}


def held_after_admission(package: str, module: str, num_computed: int, num_loaded: int, salt: str = "") -> int:
    """How many chunks of a prompt of six tokens are locked when it is admitted and its loads are over.

    module: that of the connector in this package. num_computed: the tokens that vLLM has in its own cache. num_loaded:
    the tokens that are then loaded by this connector, and not by another one.
    """
    os.environ["LMCACHE_USE_UPSTREAM_MP"] = "1"
    imported = import_modules(
        package,
        (module, "integration.vllm.lmcache_mp_metadata"),
        STAND_INS,
        others=("lmcache", "vllm", "zmq"),
    )
    found = imported(module)
    server, connector = Server(), found.LMCacheMPConnector.__new__(found.LMCacheMPConnector)
    connector.__dict__.update(
        scheduler_adapter=server, request_trackers={}, vllm_block_size=BLOCK_SIZE, _hit_alignment_tokens=BLOCK_SIZE
    )
    tokens = list(range(3 * BLOCK_SIZE))
    request = StandIn(
        request_id="a",
        num_computed_tokens=0,
        all_token_ids=tokens,
        prompt_token_ids=tokens,
        block_hashes=[],
        status="waiting",
        cache_salt=salt,
    )
    connector.get_num_new_matched_tokens(request, num_computed)
    assert server.found, "nothing was looked up"
    connector.update_state_after_alloc(request, StandIn(get_block_ids=lambda: ([1, 2, 3],)), num_loaded)
    server.free_lookup_locks(tokens, len(tokens) - num_loaded, len(tokens), "a", salt)  # the load releases its chunks
    return len(server.held)
