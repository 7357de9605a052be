"""Tensors of the simulated device: main memory whose changes are queued.

Each call of torch goes through `Calls.call`, which knows five kinds of it:

- a *view*, or a question about shape and type, is answered at once, as it moves no bytes;
- a *copy* between host and device is queued. The host waits for it unless the call is non-blocking. Memory of the host
  that is not page-locked is read at once, and written only after waiting, as CUDA does;
- a call that *returns values to the host*, such as `tolist`, makes the host wait for the current stream;
- any other call on tensors of the device is a *kernel*: its result gets its shape at once and its bytes when it runs;
- a call on page-locked memory of the host is work of the host.

New memory of the device holds the byte 0xA5, so that a result that is used before it was computed is recognised.

Source: torch documentation, CUDA semantics, asynchronous execution and use of pinned memory buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from kvproof.check.data_plane.simulated_cuda.accesses import Accesses
from kvproof.check.data_plane.simulated_cuda.order import Host, Operation

CUDA = torch.device("cuda", 0)
UNWRITTEN = 0xA5

# fmt: off
VIEWS = frozenset((
    "view", "as_strided", "select", "narrow", "split", "unbind", "chunk", "expand", "expand_as", "t", "transpose",
    "permute", "squeeze", "unsqueeze", "view_as", "detach", "unflatten", "movedim", "diagonal", "__iter__", "size",
    "stride", "dim", "numel", "nelement", "element_size", "data_ptr", "storage_offset", "is_contiguous", "__len__",
    "is_floating_point", "is_complex", "__hash__", "untyped_storage", "_is_view", "get_device",
))
TO_HOST = frozenset((
    "tolist", "item", "__bool__", "__int__", "__float__", "__index__", "equal", "allclose", "__repr__", "__contains__",
))
SIZED_BY_VALUES = frozenset(("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere"))
SOURCES = frozenset((
    "tensor", "as_tensor", "zeros", "ones", "full", "arange", "rand", "randn", "randint", "zeros_like", "ones_like",
    "full_like",
))
EMPTY = frozenset(("empty", "empty_like", "empty_strided", "new_empty"))
IN_PLACE = frozenset((
    "__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__",
    "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__",
))
# fmt: on


class DeviceTensor(torch.Tensor):
    """A tensor of the simulated device. Its memory is main memory."""

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    calls: Calls

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return cls.calls.call(func, args, kwargs or {})


class Mode(TorchFunctionMode):
    """Sends all calls of torch in this thread to the simulation, also those that have no tensor of the device yet."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self.calls.call(func, args, kwargs or {})


def plain(value: Any) -> Any:
    """The value with the memory of tensors of the device in their place; also within lists, tuples and dicts."""
    return _mapped(value, lambda one: one.as_subclass(torch.Tensor) if isinstance(one, DeviceTensor) else one)


def _mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(one, change) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(one, change) for one in value)
    return value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _is_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


class Calls:
    """The calls of torch in a simulation."""

    def __init__(self, host: Host, accesses: Accesses) -> None:
        self.host, self.accesses = host, accesses
        self._results: dict[str, Any] = {}

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do what torch would do on a machine with the device."""
        with torch._C.DisableTorchFunction():
            return self._call(func, args, kwargs)

    def _call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        is_ours = any(isinstance(one, DeviceTensor) for one in _tensors([args, kwargs]))
        if name == "is_pinned":
            return self.accesses.follows(plain(args[0])) and not is_ours
        if name == "record_stream":
            return None
        if name == "pin_memory":
            made = args[0].clone()
            self.accesses.follow(made)
            return made
        if name in ("to", "cpu", "cuda"):
            return self._moved(func, args, kwargs)
        if name == "copy_" and (is_ours or self._is_followed(args)):
            return self._copied(args[0], args[1], bool((args[2:] or (kwargs.get("non_blocking", False),))[0]))
        if name == "__setitem__" and is_ours and _is_basic(args[1]) and isinstance(args[2], torch.Tensor):
            part = plain(args[0])[args[1]]
            self._copied(self._ours(part) if isinstance(args[0], DeviceTensor) else part, args[2], False)
            return None
        if name in EMPTY | SOURCES and (_is_cuda(kwargs["device"]) if kwargs.get("device") is not None else is_ours):
            return self._made(name, func, args, kwargs)
        if not is_ours:
            return self._on_host(name, func, args, kwargs)
        if name in VIEWS or name == "__get__" or (name == "__getitem__" and _is_basic(args[1])):
            return self._ours(func(*plain(args), **plain(kwargs)))
        if name in ("flatten", "reshape", "contiguous") and args[0].is_contiguous():
            return self._ours(func(*plain(args), **plain(kwargs)))
        if name == "numpy":
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if name in TO_HOST:
            self._await_reads(name, args, kwargs)
            return func(*plain(args), **plain(kwargs))
        if name in SIZED_BY_VALUES or (name == "__getitem__" and _has_mask(args[1])):
            self._await_reads(name, args, kwargs)
            return self._ours(func(*plain(args), **plain(kwargs)))
        return self._kernel(name, func, args, kwargs)

    # Calls that queue no kernel ----------------------------------------------------------------------------------

    def _on_host(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call on main memory. Page-locked memory is followed, as the device may use it meanwhile."""
        if kwargs.get("pin_memory"):
            made = func(*args, **{**kwargs, "pin_memory": False})
            self.accesses.follow(made)
            return made
        if name not in VIEWS and name not in ("__get__", "__getitem__") and self._is_followed([args, kwargs]):
            self._touch(self.host.act(name), name, args, kwargs)
        return func(*args, **kwargs)

    def _made(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        """New memory of the device. Its values, if it has some, come from a kernel."""
        values = func(*plain(args), **{**plain(kwargs), "device": "cpu", "pin_memory": False})
        made = self._new(torch.empty_strided(values.shape, values.stride(), dtype=values.dtype))
        if name in SOURCES:
            self._submit(name, [], [made], lambda: plain(made).copy_(values))
        return made

    def _new(self, memory: torch.Tensor) -> torch.Tensor:
        """Make new main memory a tensor of the device."""
        storage = torch.empty(0, dtype=torch.uint8).set_(memory.untyped_storage())
        storage.fill_(UNWRITTEN)
        self.accesses.follow(memory)
        made: torch.Tensor = memory.as_subclass(DeviceTensor)
        return made

    def _ours(self, value: Any) -> Any:
        return _mapped(value, lambda one: one.as_subclass(DeviceTensor))

    def _moved(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`to`, `cpu` or `cuda`: a copy on the other side, or of another type; else the tensor itself."""
        source, others = args[0], [*args[1:], *kwargs.values()]
        devices = [one.device if isinstance(one, torch.Tensor) else one for one in others]
        asked = [torch.device(one) for one in devices if isinstance(one, str | torch.device)]
        is_ours = isinstance(source, DeviceTensor)
        to_device = asked[0].type == "cuda" if asked else {"cpu": False, "cuda": True}.get(func.__name__, is_ours)
        dtype = next((one for one in others if isinstance(one, torch.dtype)), source.dtype)
        if to_device == is_ours:
            return source if dtype == source.dtype else self._call(torch.Tensor.type, (source, dtype), {})
        like = torch.empty_like(plain(source), dtype=dtype)
        target = self._new(like) if to_device else like
        return self._copied(target, source, bool(kwargs.get("non_blocking", False)))

    def _copied(self, target: torch.Tensor, source: torch.Tensor, is_free: bool) -> torch.Tensor:
        """Copy between any two sides. is_free: the host does not wait, where it need not."""
        stream, memory, values = self.host.current, plain(target), plain(source)
        to_device, from_device = isinstance(target, DeviceTensor), isinstance(source, DeviceTensor)
        if not to_device and not from_device:
            self._touch(self.host.act("copy_"), "copy_", (target, source), {})
            memory.copy_(values)
            return target
        is_queued = is_free and self.accesses.follows(memory) and self.accesses.follows(values)
        reads = [source]
        if not from_device and not is_queued:
            self.accesses.read(self.host.act("a copy to the device"), values)
            values, reads = values.clone(), []
        self._submit("a copy", reads, [target], lambda: memory.copy_(values))
        waits = not is_queued if from_device else not is_free
        if waits and not (to_device and from_device):
            stream.synchronize()
        return target

    def _await_reads(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The host waits for the current stream and then reads."""
        self.host.current.synchronize()
        operation = self.host.act(name)
        for one in _tensors([args, kwargs]):
            self.accesses.read(operation, plain(one))

    def _is_followed(self, value: Any) -> bool:
        return any(self.accesses.follows(plain(one)) for one in _tensors(value))

    # Kernels -----------------------------------------------------------------------------------------------------

    def _kernel(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Queue a call. Raises RuntimeError, as torch does, if some of its tensors are in main memory."""
        index = args[1] if name in ("__getitem__", "__setitem__") else None
        for one in _tensors([args, kwargs]):
            if not isinstance(one, DeviceTensor) and one.dim() and not _is_in(one, index):
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but {name} got tensors on cuda:0 and cpu"
                )
        given, options = plain(args), plain(kwargs)
        is_new = not _is_inplace(name, kwargs)
        if is_new:
            result = self._result_of(func, given, options)
            made = _mapped(result, lambda one: self._new(torch.empty(one.shape, dtype=one.dtype)))
        else:
            made = kwargs.get("out", args[0])

        def runs(operation: Operation) -> None:
            with torch._C.DisableTorchFunction():
                values = func(*given, **options)
                self._touch(operation, name, args, kwargs)
                for target, value in zip(_tensors(made), _tensors(values), strict=True) if is_new else ():
                    plain(target).copy_(value)
                    self.accesses.write(operation, plain(target))

        self.host.current.submit(name, runs)
        return made

    def _result_of(self, func: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The result of a call with zeros in the place of all values, in the memory of one element for each tensor.

        It depends on shapes and types alone, so it is kept for the next call.
        """
        key = repr((func, _mapped((given, options), lambda one: _Shape(one.shape, one.dtype))))
        if key not in self._results:
            self._results[key] = _mapped(func(*_mapped(given, _zeros), **_mapped(options, _zeros)), _zeros)
        return self._results[key]

    def _submit(
        self, name: str, reads: list[torch.Tensor], writes: list[torch.Tensor], run: Callable[[], object]
    ) -> None:
        def runs(operation: Operation) -> None:
            with torch._C.DisableTorchFunction():
                run()
                for one in reads:
                    self.accesses.read(operation, plain(one))
                for one in writes:
                    self.accesses.write(operation, plain(one))

        self.host.current.submit(name, runs)

    def _touch(self, operation: Operation, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Report what a call has read and written: of tables that it indexes, the rows of the index."""
        given, options = plain(args), plain(kwargs)
        is_inplace, out = _is_inplace(name, kwargs), options.get("out")
        for number, one in enumerate(_tensors([given, {k: v for k, v in options.items() if k != "out"}])):
            memory, rows = one, None
            if number == 0 and name in ("index_select", "index_copy_", "__setitem__", "__getitem__"):
                memory, rows = _part(name, given)
            is_written = is_inplace and number == 0 and out is None
            (self.accesses.write if is_written else self.accesses.read)(operation, memory, rows)
        for memory in _tensors(out):
            self.accesses.write(operation, memory)


def _part(name: str, args: tuple[Any, ...]) -> tuple[torch.Tensor, NDArray[np.int64] | None]:
    """The part of the first tensor that an index names: a tensor, and its rows, or None for all of them.

    Negative numbers count from the end, as for torch.
    """
    table, index = args[0], args[1]
    if name in ("index_select", "index_copy_"):
        return table.movedim(int(args[1]), 0), args[2].numpy().astype(np.int64)
    if isinstance(index, torch.Tensor) and index.dtype != torch.bool:
        rows: NDArray[np.int64] = index.flatten().numpy().astype(np.int64)
        return table, np.where(rows < 0, rows + len(table), rows)
    return (table[index] if _is_basic(index) else table), None


class _Shape(NamedTuple):
    """What the result of a call depends on, of one of its tensors."""

    size: torch.Size
    dtype: torch.dtype


def _is_basic(index: Any) -> bool:
    """Whether indexing gives a view."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(one is None or one is Ellipsis or isinstance(one, slice | int) for one in parts)


def _has_mask(index: Any) -> bool:
    return any(one.dtype == torch.bool for one in _tensors(index))


def _is_in(tensor: torch.Tensor, index: Any) -> bool:
    return any(one is tensor for one in _tensors(index))


def _is_inplace(name: str, kwargs: dict[str, Any]) -> bool:
    is_method = name.endswith("_") and not name.endswith("__")
    return is_method or name in IN_PLACE or kwargs.get("out") is not None


def _zeros(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape and type, all zeros, in the memory of one element.

    A call on such tensors tells the shape of its result. It costs less than torch's tensors without memory, whose
    import takes seconds, and zero is an index of every table.
    """
    return torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
