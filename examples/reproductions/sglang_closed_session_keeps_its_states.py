"""SGLang 0.5.10: a streaming session that is closed does not give back its Mamba states (issue 23496).

Closing a session gives back its KV and its row, and forgets the states of its layers with a state space. Their places
are lost.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

from typing import Any

import torch
from on_any_engine import StandIn, fault_if, nothing
from on_sglang_modules import import_modules

module = import_modules(["srt.mem_cache.session_aware_cache", "srt.session.streaming_session"])
old = module("srt.mem_cache.session_aware_cache")  # up to 0.5.10.post1
sessions = old or module("srt.session.streaming_session")
given_back: list[int] = []


def give_back(states: Any) -> None:
    """Take the places of states back."""
    given_back.extend(states.tolist())


states = StandIn(free=give_back)
rows = StandIn(
    mamba_pool=states, mamba_allocator=states, req_to_token=torch.arange(64).reshape(2, 32), free_slots=[], free=nothing
)
allocator = StandIn(free=nothing, page_size=1)
inner = StandIn(req_to_token_pool=rows, token_to_kv_pool_allocator=allocator, page_size=1, dec_lock_ref=nothing)
cache = (sessions.SessionAwareCache if old else sessions.StreamingSession)(inner)
session = cache.slots["session"] = sessions.SessionSlot()
session.req_pool_idx, session.kv_committed_len, session.kv_allocated_len = 1, 20, 20
session.mamba_pool_idx, session.mamba_ping_pong_track_buffer = torch.tensor(3), torch.tensor([4, 5])
cache.release_session("session")
print(f"the session has the states 3, 4 and 5; given back: {sorted(given_back)}")
fault_if(sorted(given_back) != [3, 4, 5], "states are lost")
