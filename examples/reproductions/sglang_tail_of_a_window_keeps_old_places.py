"""SGLang 0.5.12: slots without a window slot keep the window slot of the request before (issue 25805).

The allocator for sliding windows maps slots of full attention to slots of the window. `alloc_extend_swa_tail` takes
window slots for the end of a prompt only, and leaves the map of the beginning as it was. If these slots were used
before, they still name window slots that other requests may have, and a later free gives them back.

The kernel that chooses slots within pages needs a device; it is replaced by one that gives whole pages. Run it with the
SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

from typing import Any

import torch
from on_any_engine import fault_if
from on_sglang_windows import new_allocator

PAGE_SIZE, NUM_TOKENS, NUM_TAIL = 2, 4, 2


def whole_pages(self: Any, prefix: Any, prefix_cpu: Any, *lengths: Any, **more: Any) -> Any:
    """The slots of the next free pages, for a prompt without a prefix."""
    num_slots = lengths[-1]
    return self.alloc(-(-num_slots // PAGE_SIZE) * PAGE_SIZE)[:num_slots]


def one(number: int) -> torch.Tensor:
    """A batch of one request."""
    return torch.tensor([number])


allocator = new_allocator(num_slots=8, page_size=PAGE_SIZE)
type(allocator.full_attn_allocator).alloc_extend = whole_pages
prompt = one(0), one(0), one(NUM_TOKENS), one(NUM_TOKENS), one(-1), NUM_TOKENS
first = allocator.alloc_extend(*prompt)
allocator.full_attn_allocator.free(first)  # the first request is over; the map keeps its places
allocator.swa_attn_allocator.free(allocator.full_to_swa_index_mapping[first])
allocator.full_attn_allocator.clear()
allocator.swa_attn_allocator.clear()
second = allocator.alloc_extend_swa_tail(*prompt, NUM_TAIL)
places = allocator.full_to_swa_index_mapping[second[: NUM_TOKENS - NUM_TAIL]].tolist()
print(f"window slots of the tokens before the tail: {places}; 0 stands for none")
fault_if(any(places), "tokens without a window have window slots")
