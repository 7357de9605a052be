"""LMCache 0.5.6: the end of a transfer whose lease is over takes the lock of another transfer.

A read lock and a write lock of the L1 manager end by themselves after a time, because their owner may have died. If the
owner is only slow, its end comes later, and it does not say whose lock it ends: `finish_read` takes one of the count,
and all writers of the storage manager share one tag. Another reader then loses its lock, so that its object can be
deleted while it is read; and the object of another writer becomes readable before it is written. This also happens if
the reservation that ran out was deleted, as an eviction does, before the other writer came. Run it with the LMCache
that is to be tried: exit code 1 if the fault is there.
"""

import inspect
import time
from typing import Any

from on_any_engine import fault_if

# isort: split
import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.config import L1ManagerConfig, L1MemoryManagerConfig
from lmcache.v1.distributed.error import L1Error
from lmcache.v1.distributed.l1_manager import L1Manager

LEASE_SECONDS = 1
TAG = {"tag": "storage_manager"} if "tag" in inspect.signature(L1Manager.finish_write).parameters else {}
KEY = ObjectKey(b"12345678", "model", 0)
layout = MemoryLayoutDesc([torch.Size([16])], [torch.float16])


def new_manager() -> Any:
    """A manager whose locks end after a second."""
    memory = L1MemoryManagerConfig(size_in_bytes=1 << 20, use_lazy=False)
    return L1Manager(L1ManagerConfig(memory, read_ttl_seconds=LEASE_SECONDS, write_ttl_seconds=LEASE_SECONDS))


def reserve(manager: Any) -> Any:
    """Begin to write the key."""
    return manager.reserve_write([KEY], [False], layout, **TAG)[KEY][0]


def late_reader() -> bool:
    """Whether the late end of one read lets an object go that another one reads."""
    manager = new_manager()
    assert reserve(manager) is L1Error.SUCCESS
    manager.finish_write([KEY], **TAG)
    manager.reserve_read([KEY])  # the first reader
    time.sleep(LEASE_SECONDS + 0.5)  # its lock is over
    assert manager.reserve_read([KEY])[KEY][0] is L1Error.SUCCESS  # the second reader
    manager.finish_read([KEY])  # the first reader ends
    return manager.delete([KEY])[KEY] is L1Error.SUCCESS


def late_writer(evicts: bool) -> bool:
    """Whether the late end of one write makes readable what another one still writes.

    evicts: whether the object is deleted when its lock is over, before the second writer comes.
    """
    manager = new_manager()
    assert reserve(manager) is L1Error.SUCCESS  # the first writer
    time.sleep(LEASE_SECONDS + 0.5)  # its lock is over
    if evicts and manager.delete([KEY])[KEY] is not L1Error.SUCCESS:
        return False
    if reserve(manager) is not L1Error.SUCCESS:  # the second writer, which has written nothing yet
        return False
    manager.finish_write([KEY], **TAG)  # the first writer ends
    return manager.reserve_read([KEY])[KEY][0] is L1Error.SUCCESS


found = [late_reader(), late_writer(evicts=False), late_writer(evicts=True)]
print("the end of a late reader lets an object be deleted that another reads:", found[0])
print("the end of a late writer makes readable what another still writes:", found[1])
print("it does if the object was evicted in between:", found[2])
fault_if(any(found), "the end of a transfer whose lease is over takes the lock of another one")
