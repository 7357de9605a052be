"""A CUDA device that is simulated in main memory, to check the order of work without a GPU.

On a GPU a copy or a kernel is only queued by the call that starts it. Code that does not wait for it is often right by
luck. Here luck is taken away. Work of a stream runs only when something waits for it: a synchronisation of the host, or
a stream that waits for an event. Until then the memory holds old bytes, and the harness finds them. And each access to
memory is compared with the accesses before it: if nothing orders two accesses of which one writes, that is a race, in
whatever order they ran this time.

What orders two accesses is the rule of `steps.ordering`: work on a stream runs in order; a stream waits for an event;
the host waits for a stream or an event; work that the host queues runs after everything that the host did before. Here
the order is kept as vector clocks (`order`), and compared for each word of memory (`accesses`).

`tensors` has the tensors of the device: main memory behind the interface of torch. `device` replaces `torch.cuda` while
a simulation runs. Not simulated are the speed, the allocator (memory that is freed while a stream still uses it), more
than one device, and kernels that are not started through torch, such as those of Triton or of an extension.
"""

from kvproof.check.data_plane.simulated_cuda.device import is_simulated, new_races, simulated_cuda

__all__ = ["is_simulated", "new_races", "simulated_cuda"]
