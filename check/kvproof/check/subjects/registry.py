"""The table of all subjects that kvproof knows by name, and `find`, which makes one of them or one of the user's own.

A row says everything about a subject: its level, what it is, how it is made, and which releases of an engine were
judged with it. To add a subject, write its adapter and one row. To support a newer release, change one row.
"""

import difflib
import importlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvproof.check.hosts.interrupt import is_from_outside
from kvproof.check.protocol.finding import error_text
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.subjects import UnknownSubject, replaced
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.loading.checkouts import AT, Checkout, checkout, digest_of, is_path, names_checkout, path_in
from kvproof.check.subjects.loading.download import order_of
from kvproof.check.subjects.own import FORMS, own, without_attribute
from kvproof.check.subjects.plugins import plugin_factory, plugins
from kvproof.spec.extras import is_installed, not_installed

Factory = Callable[[], ManagerSubject]
MANAGER, SCHEDULER, POOL, STORE, ENCODER, PAIR = "manager", "scheduler", "pool", "store", "encoder", "pair"
OF_EVERY_SUBJECT = ("capabilities", "open", "observe")  # at every level
FORMS_OF_OWN = f"{FORMS} for your own"


@dataclass(frozen=True)
class Row:
    """A subject that has a name.

    level: one of those above. sentence: what it is. make: returns the subject; its argument is the release, or the path
    of a checkout, or missing if the subject has neither. engine: the package that the releases are of. releases: the
    oldest and the newest release that was judged. default: the release that is taken if none is named. needs: a module
    of an extra of kvproof that the adapter imports. is_over: later releases of the engine do not have it any more.
    """

    name: str
    level: str
    sentence: str
    make: Callable[..., Any]
    engine: str = ""
    releases: tuple[str, str] | None = None
    default: str = ""
    is_checkout: bool = False
    needs: str = ""
    is_over: bool = False

    @property
    def usage(self) -> str:
        """Which releases can be judged, for the list of subjects."""
        if self.is_checkout:
            return f"write {self.name}==PATH, with the path of a checkout"
        if self.releases is None:
            return ""
        return f"releases {_span(self)}, default {self.default_release}"

    @property
    def goes_on(self) -> bool:
        """Whether new releases of an engine may have it."""
        return self.releases is not None and not self.is_over

    @property
    def default_release(self) -> str:
        """The release that is judged if none is named."""
        return self.default or (self.releases[1] if self.releases else "")


def _by(adapter: str) -> Callable[..., Any]:
    """A class of this package, as module.class. The module is imported when a subject is made."""
    module, _, name = adapter.rpartition(".")
    return lambda *release: getattr(importlib.import_module(f"{__package__}.{module}"), name)(*release)


def _vllm_v0(generation: int | None = None) -> Callable[[str], Any]:
    """vLLM's V0 manager; which adapter it needs depends on the generation of the manager that the release has."""

    def make(release: str) -> Any:
        from kvproof.check.subjects.vllm.v0_generation1 import VllmV0Generation1
        from kvproof.check.subjects.vllm.v0_loader import import_manager
        from kvproof.check.subjects.vllm.v0_manager import VllmV0

        found = import_manager(release, generation=generation)
        return (VllmV0Generation1 if found.generation == 1 else VllmV0)(release, found)

    return make


V0_DEFAULT, V0_NEWEST = "0.9.2", "0.10.2"
ROWS = (
    Row(
        "exllamav3",
        MANAGER,
        "ExLlamaV3's page table with its jobs",
        _by("exllamav3.ExLlamaV3"),
        "exllamav3",
        ("1.6.0", "1.6.5"),
        needs="torch",
    ),
    Row("kvproof", MANAGER, "kvproof's own block manager", _by("builtin.manager.BuiltIn")),
    Row(
        "kvproof-generation1",
        MANAGER,
        "kvproof's manager with the interface of vLLM's first generation; its sliding windows are rings",
        _by("builtin.generation1.Generation1"),
    ),
    Row(
        "kvproof-objects",
        MANAGER,
        "kvproof's block objects with vLLM's public interface, driven as vLLM's own block manager drives its objects",
        _by("builtin.objects.BlockObjects"),
    ),
    Row(
        "kvproof-offers",
        STORE,
        "kvproof's own store, whose loads are leases of readers far away",
        _by("builtin.store.OwnOffers"),
    ),
    Row("kvproof-pair", PAIR, "kvproof's own pair of engines: prefill, a wire, decode", _by("builtin.pair.OwnPair")),
    Row("kvproof-pool", POOL, "kvproof's own block pool with its prefix cache", _by("builtin.pool.OwnPool")),
    Row(
        "kvproof-scheduler",
        SCHEDULER,
        "kvproof's own scheduler with its block manager",
        _by("builtin.scheduler.BuiltInScheduler"),
    ),
    Row("kvproof-store", STORE, "kvproof's own store of KV outside the device", _by("builtin.store.OwnStore")),
    Row(
        "lmcache-allocator",
        POOL,
        "LMCache's paged allocator with the reference counts of its memory objects",
        _by("lmcache.LMCacheAllocator"),
        "lmcache",
        ("0.5.2", "0.5.6"),
        needs="torch",
    ),
    Row(
        "lmcache-l1",
        STORE,
        "LMCache's L1 manager: objects in host memory, whose locks are leases",
        _by("lmcache.LMCacheL1"),
        "lmcache",
        ("0.5.0", "0.5.6"),
    ),
    Row(
        "lmdeploy",
        MANAGER,
        "the block manager and the prefix cache of LMDeploy's PyTorch engine",
        _by("lmdeploy.LMDeploy"),
        "lmdeploy",
        ("0.18.0", "0.18.0"),
        needs="numpy",
    ),
    Row(
        "mini-sglang",
        MANAGER,
        "mini-sglang's cache manager",
        _by("mini_sglang.MiniSGLang"),
        is_checkout=True,
        needs="torch",
    ),
    Row("nano-vllm", MANAGER, "nano-vllm's block manager", _by("nano_vllm.manager_of"), is_checkout=True),
    Row(
        "nano-vllm-scheduler",
        SCHEDULER,
        "nano-vllm's scheduler with its block manager",
        _by("nano_vllm.NanoVllmScheduler"),
        is_checkout=True,
    ),
    Row(
        "sglang",
        MANAGER,
        "SGLang's pool and prefix cache",
        _by("sglang.manager.SGLang"),
        "sglang",
        ("0.5.9", "0.5.23"),
        needs="torch",
    ),
    Row(
        "sglang-hicache",
        STORE,
        "SGLang's HiCache: the host pool below its prefix cache, filled from the device and from a storage",
        _by("sglang.hicache.store.SGLangHiCache"),
        "sglang",
        ("0.5.5", "0.5.23"),
        needs="torch",
    ),
    Row(
        "sglang-pd",
        PAIR,
        "two of SGLang's engines with its disaggregation: prefill writes into the pages that decode has reserved",
        _by("sglang.pd_pair.SGLangPd"),
        "sglang",
        ("0.5.12", "0.5.23"),
        needs="torch",
    ),
    Row(
        "sglang-scheduler",
        SCHEDULER,
        "SGLang's scheduler with its pool and prefix cache",
        _by("sglang.scheduler.SGLangScheduler"),
        "sglang",
        ("0.5.13", "0.5.23"),
        needs="torch",
    ),
    Row(
        "transformers",
        SCHEDULER,
        "the loop of transformers' continuous batching",
        _by("transformers.scheduler.Transformers"),
        "transformers",
        ("5.20.0", "5.24.0"),
        needs="torch",
    ),
    Row(
        "vllm-encoder-cache",
        ENCODER,
        "vLLM's V1 cache of encoder outputs, such as those of images",
        _by("vllm.encoder_cache.VllmEncoderCache"),
        "vllm",
        ("0.11.0", "0.33.0"),
    ),
    Row(
        "vllm-offload",
        STORE,
        "vLLM's offloading manager for host memory",
        _by("vllm.offload.VllmOffload"),
        "vllm",
        ("0.11.0", "0.33.0"),
    ),
    Row(
        "vllm-offloading",
        SCHEDULER,
        "vLLM's V1 scheduler with its own OffloadingConnector, which keeps KV in host memory",
        _by("vllm.offloading_schedulers.VllmOffloading"),
        "vllm",
        ("0.21.0", "0.33.0"),
    ),
    Row(
        "vllm-simple-offload",
        STORE,
        "vLLM's SimpleCPUOffloadConnector, whose host memory is a second block pool",
        _by("vllm.simple_offload.VllmSimpleOffload"),
        "vllm",
        ("0.29.0", "0.33.0"),
    ),
    Row(
        "vllm-simple-offloading",
        SCHEDULER,
        "vLLM's V1 scheduler with its own SimpleCPUOffloadConnector, whose host memory is a second block pool",
        _by("vllm.offloading_schedulers.VllmSimpleOffloading"),
        "vllm",
        ("0.31.0", "0.33.0"),
    ),
    Row(
        "vllm-tiering",
        STORE,
        "vLLM's tiered offloading manager: the host, and a second tier behind it",
        _by("vllm.tiering.VllmTiering"),
        "vllm",
        ("0.24.0", "0.33.0"),
    ),
    Row(
        "vllm-pd",
        PAIR,
        "two of vLLM's V1 engines with its NIXL connector: decode reads what prefill offers",
        _by("vllm.pd_pair.VllmPd"),
        "vllm",
        ("0.26.0", "0.33.0"),
        needs="torch",
    ),
    Row(
        "vllm-pd-push",
        PAIR,
        "two of vLLM's V1 engines with its NIXL connector: prefill writes into what decode registers",
        _by("vllm.pd_pair.VllmPdPush"),
        "vllm",
        ("0.26.0", "0.33.0"),
        needs="torch",
    ),
    Row(
        "vllm-v0",
        MANAGER,
        "vLLM's V0 block manager",
        _vllm_v0(),
        "vllm",
        ("0.2.0", V0_NEWEST),
        V0_DEFAULT,
        is_over=True,
    ),
    Row(
        "vllm-v0-generation1",
        MANAGER,
        "the first generation of vLLM's V0 block manager, in releases that have two",
        _vllm_v0(generation=1),
        "vllm",
        ("0.4.0", "0.6.3"),
        is_over=True,
    ),
    Row(
        "vllm-v0-scheduler",
        SCHEDULER,
        "vLLM's V0 scheduler with its block manager",
        _by("vllm.v0_scheduler.VllmV0Scheduler"),
        "vllm",
        ("0.6.5", V0_NEWEST),
        V0_DEFAULT,
        is_over=True,
    ),
    Row("vllm-v1", MANAGER, "vLLM's V1 KV cache manager", _by("vllm.v1_manager.VllmV1"), "vllm", ("0.6.5", "0.33.0")),
    Row(
        "vllm-v1-images",
        SCHEDULER,
        "vLLM's V1 scheduler with images, whose outputs its own cache keeps",
        _by("vllm.v1_images.VllmV1Images"),
        "vllm",
        ("0.12.0", "0.33.0"),
    ),
    Row("vllm-v1-pool", POOL, "vLLM's V1 block pool", _by("vllm.v1_pool.VllmV1Pool"), "vllm", ("0.10.2", "0.33.0")),
    Row(
        "vllm-v1-scheduler",
        SCHEDULER,
        "vLLM's V1 scheduler with its KV cache manager",
        _by("vllm.v1_scheduler.VllmV1Scheduler"),
        "vllm",
        ("0.11.0", "0.33.0"),
    ),
)
NAMED = {row.name: row for row in ROWS}


def find(name: str) -> Factory:
    """A function that makes the subject of this name.

    The name is one of the table, with `==` and a release or a path where the row takes one; or one that an installed
    package offers (`plugins`); or `module:factory` or `path/to/file.py:factory`. Raises UnknownSubject, and so does the
    function it returns if the subject cannot be made.
    """
    if ":" in name:
        return _guarded(name, own(name))
    if name.endswith(".py"):
        raise UnknownSubject(without_attribute(name))
    known, separator, release = name.partition("==")
    row = NAMED.get(known)
    if row is None and known in (offered := plugins()):
        return _guarded(name, plugin_factory(offered[known], release, NAMED))
    if row is None:
        raise UnknownSubject(f"there is no subject {name!r}{_suggestion(known)}")
    takes = "a path" if row.is_checkout else "a release or a path" if row.releases else ""
    if row.needs and not is_installed(row.needs):
        raise UnknownSubject(not_installed(name, row.needs))
    if separator and not (takes and release):
        raise UnknownSubject(f"{name!r}: {known} takes {f'{takes} after ==' if takes else 'no release'}")
    if row.is_checkout and not release:
        raise UnknownSubject(f"{known} has no releases: {row.usage}")
    if row.releases and names_checkout(release):
        found = _checkout(row, release)
        return _guarded(name, lambda: _made_of(row, found))
    arguments = (release or row.default_release,) if takes else ()
    return _guarded(name, lambda: _made_of_release(row, *arguments))


def _checkout(row: Row, text: str) -> Checkout:
    """The checkout that a name has after `==`. Raises UnknownSubject."""
    try:
        found = checkout(row.engine, text)
        download.parse(f"{row.engine}=={found.release}")
    except EngineError as error:
        raise UnknownSubject(f"{row.name}=={text}: {error}") from error
    oldest, newest = row.releases or ("", "")
    if not order_of(oldest) <= order_of(found.release) <= order_of(newest):
        raise UnknownSubject(
            f"{row.name}=={text}: release {found.release} lies outside those that {row.name} was judged with "
            f"({_span(row)}); name the one that the checkout is like: --like {newest}"
        )
    return found


def _made_of_release(row: Row, *release: str) -> Any:
    """The subject of a release, or one without. No checkout is taken for the release any more."""
    if row.engine:
        download.take_for_release(row.engine, *release, root=None)
    return row.make(*release)


def _made_of(row: Row, found: Checkout) -> Any:
    """The subject of a checkout. This process takes the checkout for the release from now on."""
    download.take_for_release(row.engine, found.release, root=found.root)
    return row.make(found.release)


def as_release(name: str, like: str | None) -> str:
    """The name of a subject whose checkout is driven as the release `like`. Raises UnknownSubject."""
    if like is None:
        return name
    known, _, text = name.partition("==")
    row = NAMED.get(known)
    if row is None or row.releases is None or not is_path(text):
        raise UnknownSubject(f"--like {like} says which release a checkout is like, and {name} names no checkout")
    if path_in(text)[0]:
        raise UnknownSubject(f"{name} names a release before the path; leave --like {like} out")
    return f"{known}=={like}{AT}{text}"


def folder_of_checkout(name: str) -> Path | None:
    """The folder of the checkout that a name has; None if it has none, or none that is there."""
    known, _, text = name.partition("==")
    row = NAMED.get(known)
    with suppress(EngineError):
        if row is not None and row.is_checkout and text:
            return Path(text).expanduser().resolve()
        if row is not None and row.releases and names_checkout(text):
            return checkout(row.engine, text).root
    return None


def content_of_checkout(name: str) -> str:
    """A digest of the Python files of the checkout that a name has; empty if it has none."""
    folder = folder_of_checkout(name)
    return "" if folder is None else digest_of(folder)


def engine_of(name: str) -> str:
    """The engine that a subject is a release of, such as "vllm" for "vllm-v0==0.9.2". Raises EngineError if of none."""
    row = NAMED.get(name.partition("==")[0])
    if row is None or not row.engine:
        engines = dict.fromkeys(row.engine for row in NAMED.values() if row.engine)
        raise EngineError(f"{name} has no releases; there are those of {', '.join(engines)}")
    return row.engine


def outside_table(name: str) -> str:
    """Says that a subject is of a release outside the table, or of a checkout, if it is; else empty."""
    known, _, release = name.partition("==")
    row = NAMED.get(known)
    if row is None or row.releases is None or not release:
        return ""
    if names_checkout(release):
        try:
            found = checkout(row.engine, release)
        except EngineError:
            return ""
        text = f"{name} is a checkout that is driven as release {found.release} of {row.engine}"
        return _with_what_changed(text, row, found.release, found.root)
    oldest, newest = row.releases
    if order_of(oldest) <= order_of(release) <= order_of(newest):
        return ""
    text = f"{name} lies outside the releases of {row.engine} that {known} was judged with ({_span(row)})"
    if order_of(release) < order_of(oldest):
        return text
    with suppress(EngineError):
        return _with_what_changed(text, row, newest, download.find(row.engine, release))
    return text


def _with_what_changed(text: str, row: Row, like: str, folder: Path) -> str:
    """The text, and which code that the adapter plays is not as in the release `like`."""
    return "; ".join(filter(None, (text, replaced.sentence(row.engine, row.name, like, folder))))


def _span(row: Row) -> str:
    return " to ".join(dict.fromkeys(row.releases or ()))


def _suggestion(name: str) -> str:
    names = [*NAMED, *plugins()]
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(names)}, and {FORMS_OF_OWN}"


def _guarded(name: str, factory: Callable[[], Any]) -> Factory:
    """The factory, with one clear error if it fails. Whether it returns a subject is checked by `isolation.factory`."""

    def make() -> ManagerSubject:
        try:
            return factory()  # type: ignore[no-any-return]
        except BaseException as error:
            if isinstance(error, UnknownSubject) or is_from_outside(error):
                raise
            text = f"{name}: the subject cannot be made: {type(error).__name__}: {error_text(error)}"
            outside = f"; {where}" if (where := outside_table(name)) else ""
            raise UnknownSubject(text + _why_no_adapter(factory) + outside) from error

    return make


def _why_no_adapter(factory: Callable[[], Any]) -> str:
    """What to name instead, if the factory is a class that has nothing of what every subject has; else empty."""
    if not isinstance(factory, type) or any(hasattr(factory, name) for name in OF_EVERY_SUBJECT):
        return ""
    return (
        f". {factory.__name__} is no adapter, because it has no {', '.join(OF_EVERY_SUBJECT)}: name a class that calls "
        "it and is derived from ManagerAdapter, SchedulerAdapter or StoreAdapter; `kvproof init` writes one"
    )
