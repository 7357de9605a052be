"""SGLang 0.5.18: a free in a group gives back the window slot that came later, not the one that was given up (36081).

The allocator for sliding windows maps slots of full attention to slots of the window. `free_swa` within
`free_group_begin` and `free_group_end` reads the map when the group ends. If the slot of full attention has got another
slot of the window meanwhile, that one is freed although it is used, and the old one is lost.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

from on_any_engine import fault_if
from on_sglang_windows import free_slots, new_allocator

allocator = new_allocator(num_slots=8)
full = allocator.alloc(1)
old = int(allocator.full_to_swa_index_mapping[full])
allocator.free_group_begin()
allocator.free_swa(full)  # its slot of the window is given up
new = allocator.swa_attn_allocator.alloc(1)
allocator.set_full_to_swa_mapping(full, new)  # and it gets another one
allocator.free_group_end()
free = free_slots(allocator.swa_attn_allocator)
print(f"the old slot {old} is free: {old in free}; the new slot {int(new)} is free: {int(new) in free}")
fault_if(int(new) in free or old not in free, "the slot that is used is free, and the other one is lost")
