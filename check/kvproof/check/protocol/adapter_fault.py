"""Whose fault an exception is: that of the adapter, which its author corrects, or that of the manager, which is judged.

An adapter is a class derived from `ManagerAdapter` or `SchedulerAdapter` outside kvproof. What goes wrong in one of its
own methods is its fault: the run ends with exit code 2 and names file and line, and nothing is decided about the
manager. What goes wrong in a method of the manager, below the adapter's, is a finding. Both may stand in one file, so
the object decides whose method it is, not the file:

- The innermost frame that executes a method decides. A method of the adapter is the adapter's; a method of any other
  object or class of the file is the manager's, static methods and what is defined in a method included.
- A function of the adapter's file belongs to who called it, and so does a frame of the standard library. A generator
  is called by who reads it, not by who made it: it belongs to the adapter only if a method of the adapter names it.
- An adapter may raise an exception of its own while it handles that of the manager, with or without `from`: it is the
  manager's. What fails in such a handler without a `raise` of the adapter is the adapter's fault.
- Native code has no frame. If the line of the adapter that failed calls native code that is not of Python itself, such
  as an extension module, the manager is blamed.
- `make` is the adapter's whatever it calls: it must raise Unsupported for a configuration that the manager cannot have.
- Where the stack ends is chance. A RecursionError is the adapter's only if every function that repeats is.

kvproof's own subjects are not adapters in this sense, nor is a class that is derived from one: see `fault_attribution`.
"""

import ast
import inspect
import linecache
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any

from kvproof.check.protocol.capabilities import whole
from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.finding import AdapterError, error_text
from kvproof.reports.document import encodable
from kvproof.spec.trace import CodePlace

NUM_FRAMES = 4  # the last ones, that a message shows
MESSAGE_CHARACTERS = 300
PLACE_CHARACTERS = 200
# Where the base classes of adapters are, and the limits of their calls.
PROTOCOL = ("kvproof.check.protocol.", "kvproof.check.hosts.")
STANDARD_LIBRARY = sysconfig.get_path("stdlib")
NEUTRAL = (*PROTOCOL, "kvproof.spec.")
OWN = "kvproof.check."
MAY_REFUSE = ("admit", "reserve")  # calls of which `refusals` lists exceptions
UNSUPPORTED = "If the manager cannot have this configuration, `make` must raise Unsupported."


class Remarked(Exception):
    """An exception of a subject in another process. remark, raised_in: what `about_refusals` and `where_raised` said of
    it there."""

    remark = ""
    raised_in = ""


def is_adapter(thing: Any) -> bool:
    """Whether it is an adapter that somebody wrote for a manager of their own."""
    return any(kind.__dict__.get("is_base_of_adapters") for kind in type(thing).__mro__) and all(
        kind.__module__.startswith(PROTOCOL) for kind in type(thing).__mro__ if kind.__module__.startswith("kvproof.")
    )


def require_fault_of_manager(error: BaseException, call: str, subject: Any) -> None:
    """Raise AdapterError if the exception, which the call raised, is a fault of the adapter."""
    if isinstance(error, EngineFailure | MemoryError):  # the last frame says nothing about the fault
        return
    frames = list(_frames(error.__traceback__))
    adapter = next((own for own in (self_of(frame) for frame, _ in frames) if is_adapter(own)), None)
    if adapter is None:
        adapter = wrapped(subject)
        _require_written(error, frames, adapter)
        if is_adapter(adapter) and isinstance(error, TypeError) and all(_is_of_judge(frame) for frame, _ in frames):
            raise adapter_error(f"{call}: {error_text(error)}", adapter, call.partition("(")[0]) from error
        return
    while not is_adapter(self_of(frames[0][0])):
        frames.pop(0)
    is_make = any(frame.f_code.co_name == "make" and self_of(frame) is adapter for frame, _ in frames)
    if not is_make and not all(_is_fault_of(adapter, one) for one in _causes(error, adapter)):
        return
    message = f"{call} raised {type(error).__name__}: {error_text(error)}"[:MESSAGE_CHARACTERS].removesuffix(": ")
    places = _last_places(frames)
    own = [(frame, line) for frame, line in frames if self_of(frame) is adapter and not is_of_kvproofs_protocol(frame)]
    raised_at = _place(*own[-1]) if own else defined_at(adapter, call.partition("(")[0]) or places[-1]
    if isinstance(error, NotImplementedError):
        message, is_make = f"{raised_at.function} is not written yet", False
    text = _text(message, raised_at, places)
    raise AdapterError(f"{text} {UNSUPPORTED}" if is_make else text) from error


def _require_written(error: BaseException, frames: list[tuple[FrameType, int]], subject: Any) -> None:
    """Raise AdapterError if a method of a subject without a base of adapters says that it is not written yet."""
    own = [(frame, line) for frame, line in frames if self_of(frame) is subject]
    is_own = own and own[-1] == frames[-1] and not type(subject).__module__.startswith(OWN)
    if isinstance(error, NotImplementedError) and is_own:
        place = _place(*own[-1])
        raise AdapterError(_text(f"{place.function} is not written yet", place, _last_places(own))) from error


def about_refusals(call: str, subject: Any) -> str:
    """What to say of an exception by which the manager may have refused a call; empty if it was asked before."""
    adapter = wrapped(subject)
    if call not in MAY_REFUSE or not is_adapter(adapter) or whole(adapter.capabilities).has_admission_query:
        return ""
    return "; nothing was asked before, so if this is how the manager refuses, list it in `refusals` of the adapter"


def located(error: AdapterError, subject: Any) -> AdapterError:
    """The error about an answer of the adapter, with the place where the adapter defines the call."""
    return adapter_error(str(error), wrapped(subject), error.call) if error.call else error


def wrapped(subject: Any) -> Any:
    """The subject itself, without the objects around it that record or narrow its calls."""
    while (inner := vars(subject).get("_subject") if hasattr(subject, "__dict__") else None) is not None:
        subject = inner
    return subject


def adapter_error(message: str, subject: Any, call: str) -> AdapterError:
    """The error that an answer of the adapter is wrong, with the place where the call is defined."""
    place = defined_at(subject, call)
    return AdapterError(_text(message, place, [place]) if place else message)


def _text(message: str, place: CodePlace, places: list[CodePlace]) -> str:
    shown = [f"  {one}: {linecache.getline(one.file, one.line).strip()}".rstrip(": ") for one in places]
    correct = f"The manager was not judged. Correct the adapter at {place.file}:{place.line}."
    headline, *more = message.split("\n")
    return "\n".join([f"{headline} ({place.file}:{place.line})", *more, *shown, correct])


# Whose method it is ------------------------------------------------------------------------------------------------


def _is_fault_of(adapter: Any, error: BaseException) -> bool:
    frames = list(_frames(error.__traceback__))
    if not isinstance(error, RecursionError):
        return _is_raised_by(adapter, frames)
    ends = _recursion(frames)
    return bool(ends) and all(_is_raised_by(adapter, frames[: end + 1]) for end in ends)


def _recursion(frames: list[tuple[FrameType, int]]) -> list[int]:
    """The last position of each function that repeats; one that is called along the way repeats less often."""
    times = Counter(frame.f_code for frame, _ in frames)
    last = {frame.f_code: position for position, (frame, _) in enumerate(frames)}
    least = max(2, max(times.values(), default=0) // 2)
    return [position for code, position in last.items() if times[code] >= least]


def is_raised_by_subject(error: BaseException, subject: Any) -> bool:
    """Whether code of the subject raised it, or of one that it passes calls on to, and not what they call."""
    frames = list(_frames(error.__traceback__))
    subjects = (own for own in (self_of(frame) for frame, _ in reversed(frames)) if _offers_the_protocol(own))
    return _is_raised_by(next(subjects, wrapped(subject)), frames)


def _offers_the_protocol(thing: Any) -> bool:
    return all(inspect.getattr_static(thing, name, None) is not None for name in ("open", "observe", "capabilities"))


def _is_raised_by(adapter: Any, frames: list[tuple[FrameType, int]]) -> bool:
    for frame, line in reversed(frames):
        own = self_of(frame)
        if is_adapter(own):  # this adapter, or another one that it uses
            return is_of_kvproofs_protocol(frame) or not _calls_native_code(frame, line)
        if is_neutral(frame):
            continue
        owner = own if isinstance(own, type) else _class_of(frame.f_code, frame, adapter) if own is None else type(own)
        if owner is not None or not _is_of_its_file(frame, adapter):
            return owner is not None and issubclass(type(adapter), owner)
        if frame.f_code.co_flags & inspect.CO_GENERATOR and not _is_named_by(adapter, frame.f_code.co_name):
            return False
    return True


def _causes(error: BaseException | None, adapter: Any) -> Iterator[BaseException]:
    """The exception, and those from which, or in whose handlers, a statement of the adapter raised it."""
    known = set[int]()
    while error is not None and id(error) not in known:  # a subject can make a ring of exceptions
        known.add(id(error))
        yield error
        error = error.__cause__ or (error.__context__ if _is_stated(error, adapter) else None)


def _is_stated(error: BaseException, adapter: Any) -> bool:
    """Whether a `raise` of the adapter made the exception, and not a fault in that line."""
    frames = list(_frames(error.__traceback__))
    if not frames:  # it was made, and not raised
        return False
    frame, line = frames[-1]
    if not _is_of_its_file(frame, adapter):
        return False
    for node in _nodes_at(frame, line):
        if isinstance(node, ast.Raise) and node.exc is not None:
            named = _value_of(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, frame)
            if not isinstance(named, type) or isinstance(error, named):
                return True
    return False


def _is_of_its_file(frame: FrameType, adapter: Any) -> bool:
    kinds = (kind for kind in type(adapter).__mro__ if not _is_of_kvproof(kind))
    return frame.f_code.co_filename in map(_source_file, kinds)


def _class_of(code: CodeType, frame: FrameType, adapter: Any) -> type | None:
    """The class in which the code of a frame without `self` is written; None for a function of its own."""
    kinds = [*type(adapter).__mro__, *(one for one in frame.f_globals.values() if isinstance(one, type))]
    return next((kind for kind in kinds if not _is_of_kvproof(kind) and code in _codes_of(kind)), None)


def _codes_of(kind: type) -> set[CodeType]:
    """The code of everything that is written in a class: methods, properties, and what is defined in them."""
    values = [getattr(value, "__func__", getattr(value, "fget", value)) for value in vars(kind).values()]
    found, left = set[CodeType](), [value.__code__ for value in values if isinstance(value, FunctionType)]
    while left:
        found.add(code := left.pop())
        left += [one for one in code.co_consts if isinstance(one, CodeType) and one not in found]
    return found


def _is_named_by(adapter: Any, name: str) -> bool:
    kinds = [kind for kind in type(adapter).__mro__ if not _is_of_kvproof(kind)]
    return any(name in code.co_names for kind in kinds for code in _codes_of(kind))


def _source_file(kind: type) -> str | None:
    try:
        return inspect.getsourcefile(kind)
    except TypeError:  # a class of native code, such as threading.local
        return None


def is_neutral(frame: FrameType) -> bool:
    """Whether the code is of Python itself, or of kvproof's protocol: it belongs to who called it."""
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
    is_of_python = file.startswith(("<frozen", STANDARD_LIBRARY)) and "site-packages" not in file
    return is_of_python or module.startswith(NEUTRAL)


def _is_of_kvproof(kind: type) -> bool:
    return kind.__module__.startswith(("kvproof.", "builtins", "typing"))


def is_of_kvproofs_protocol(frame: FrameType) -> bool:
    """Whether a frame executes the base class of adapters."""
    return str(frame.f_globals.get("__name__", "")).startswith(PROTOCOL)


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def self_of(frame: FrameType) -> Any:
    """The object whose method the frame executes; None for a function."""
    code = frame.f_code
    is_method = code.co_argcount and code.co_varnames[0] in ("self", "cls")
    return frame.f_locals.get(code.co_varnames[0]) if is_method else None


def _calls_native_code(frame: FrameType, line: int) -> bool:
    """Whether a call in this line is of native code that is not of Python's own library."""
    calls = (node for node in _nodes_at(frame, line) if isinstance(node, ast.Call))
    return any(_is_native(_value_of(node.func, frame)) for node in calls)


def _nodes_at(frame: FrameType, line: int) -> list[ast.expr | ast.stmt]:
    """The statements and expressions of a frame's file that this line is part of."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
    except (SyntaxError, ValueError):
        return []
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt))
    return [node for node in nodes if node.lineno <= line <= (node.end_lineno or 0)]


def _value_of(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name, or of attributes of a name; None for any other expression."""
    if isinstance(node, ast.Name):
        known = (names[node.id] for names in (frame.f_locals, frame.f_globals, frame.f_builtins) if node.id in names)
        return next(known, None)
    if isinstance(node, ast.Attribute) and (owner := _value_of(node.value, frame)) is not None:
        try:
            return getattr(owner, node.attr, None)
        except Exception:
            return None
    return None


def _is_native(called: Any) -> bool:
    called = getattr(called, "__func__", called) if isinstance(called, MethodType) else called
    owner = getattr(called, "__self__", None)
    if called is None or isinstance(called, FunctionType):
        return False
    if isinstance(called, type) or owner is None or isinstance(owner, ModuleType):
        file = getattr(sys.modules.get(called.__module__ or ""), "__file__", None) or ""
        return not _is_of_python(called.__module__) and not file.endswith(".py")
    return not _is_of_python((owner if isinstance(owner, type) else type(owner)).__module__)


def _is_of_python(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in sys.stdlib_module_names


# Places ------------------------------------------------------------------------------------------------------------


def defined_at(subject: Any, call: str) -> CodePlace | None:
    """Where the adapter defines a call, or the call of its own that the base class makes for it."""
    for name in (call, *BEHIND.get(call, ()), "observe"):
        function = getattr(subject, name, None)
        code = getattr(function, "__code__", None)
        if code is not None and not str(getattr(function, "__module__", "")).startswith(PROTOCOL):
            return CodePlace(getattr(function, "__qualname__", name), shown(code.co_filename), code.co_firstlineno)
    try:
        file = inspect.getsourcefile(type(subject))
        line = inspect.getsourcelines(type(subject))[1]
    except (OSError, TypeError):
        return None
    return CodePlace(type(subject).__name__, shown(file or "?"), line)


# The calls of an adapter's own that the base class makes in each call of the protocol.
BEHIND = {
    "open": ("make",),
    "can_admit": ("can_allocate",),
    "admit": ("allocate",),
    "reserve": ("append",),
    "fork": ("share",),
    "free": ("release",),
    "preempt": ("release",),
    "observe": ("tables",),
}


def place_of(frame: FrameType) -> CodePlace:
    """Where the function that a frame executes is defined."""
    return _place(frame, frame.f_code.co_firstlineno)


def places_of(error: BaseException) -> list[CodePlace]:
    """The last frames of the subject's code in which the exception was raised, innermost last."""
    return _last_places([(f, n) for f, n in _frames(error.__traceback__) if not _is_of_judge(f)])


def foreign_place(error: BaseException) -> CodePlace | None:
    """Where the exception was raised, if code that is neither kvproof's nor Python's raised it."""
    frames = list(_frames(error.__traceback__))
    if not frames or str(frames[-1][0].f_globals.get("__name__", "")).startswith("kvproof."):
        return None
    file = frames[-1][0].f_code.co_filename
    return None if file.startswith((STANDARD_LIBRARY, "<")) else _place(*frames[-1])


def where_raised(error: BaseException) -> str:
    """The function of the subject that raised, and the name of its file; empty if none is known.

    It is the same in two releases if the function has not moved. Where a stack overflows or memory ends is chance: then
    it is the function that was called. What an adapter of kvproof says of an engine has no place in the engine.
    """
    if isinstance(error, Remarked):
        return error.raised_in
    frames = [frame for frame, _ in _frames(error.__traceback__) if _is_foreign(frame)]
    if not frames or isinstance(error, EngineFailure):
        return ""
    frame = frames[0 if isinstance(error, RecursionError | MemoryError) else -1]
    place = f"{_qualified(frame)} of {Path(frame.f_code.co_filename).name}"
    return str(encodable(place))[:PLACE_CHARACTERS]


def _is_foreign(frame: FrameType) -> bool:
    """Whether the frame executes a function with a name that is neither kvproof's nor Python's."""
    is_own = str(frame.f_globals.get("__name__", "")).startswith(OWN)
    return not (is_own or is_neutral(frame) or frame.f_code.co_name.startswith("<"))


def _is_of_judge(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(("kvproof.check.oracle.", "kvproof.check.isolation."))


def _last_places(frames: list[tuple[FrameType, int]]) -> list[CodePlace]:
    own = [(frame, line) for frame, line in frames if not is_of_kvproofs_protocol(frame)] or frames[-1:]
    return [_place(frame, line) for frame, line in own[-NUM_FRAMES:]]


def _place(frame: FrameType, line: int) -> CodePlace:
    return CodePlace(_qualified(frame), shown(frame.f_code.co_filename), line)


def _qualified(frame: FrameType) -> str:
    """The name of the function of a frame, with its class, and without the function in which either is defined."""
    return frame.f_code.co_qualname.rpartition("<locals>.")[2]


def shown(file: str) -> str:
    """A path, relative to the working folder if it lies in it."""
    try:
        return Path(file).relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return file
