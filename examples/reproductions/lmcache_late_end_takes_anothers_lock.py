"""LMCache 0.5.6: the end of a transfer whose lease is over takes the lock of another transfer.

A read lock and a write lock of the L1 manager end by themselves after a time, because their owner may have died. If the
owner is only slow, its end comes later, and it does not say whose lock it ends: `finish_read` takes one of the count,
and all writers of the storage manager share one tag. Another reader then loses its lock, so that its object can be
deleted while it is read; and the object of another writer becomes readable before it is written. This also happens if
the reservation that ran out was deleted, as an eviction does, before the other writer came.

Run it with the LMCache that is to be tried. It needs no GPU, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
import time
from typing import Any

import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.config import L1ManagerConfig, L1MemoryManagerConfig
from lmcache.v1.distributed.error import L1Error
from lmcache.v1.distributed.l1_manager import L1Manager

LEASE_SECONDS = 1
TAG = {"tag": "storage_manager"} if "tag" in inspect.signature(L1Manager.finish_write).parameters else {}
layout = MemoryLayoutDesc([torch.Size([16])], [torch.float16])


def new_manager() -> Any:
    """A manager whose locks end after a second."""
    memory = L1MemoryManagerConfig(size_in_bytes=1 << 20, use_lazy=False)
    return L1Manager(L1ManagerConfig(memory, read_ttl_seconds=LEASE_SECONDS, write_ttl_seconds=LEASE_SECONDS))


def key() -> ObjectKey:
    """A key."""
    return ObjectKey(b"12345678", "model", 0)


def reserve(manager: Any) -> L1Error:
    """Begin to write the key."""
    error: L1Error = manager.reserve_write([key()], [False], layout, **TAG)[key()][0]
    return error


def late_reader() -> bool:
    """Whether the late end of one read lets an object go that another one reads."""
    manager = new_manager()
    assert reserve(manager) is L1Error.SUCCESS
    manager.finish_write([key()], **TAG)
    manager.reserve_read([key()])  # the first reader
    time.sleep(LEASE_SECONDS + 0.5)  # its lock is over
    assert manager.reserve_read([key()])[key()][0] is L1Error.SUCCESS  # the second reader
    manager.finish_read([key()])  # the first reader ends
    deleted: bool = manager.delete([key()])[key()] is L1Error.SUCCESS
    return deleted


def late_writer(evicts: bool) -> bool:
    """Whether the late end of one write makes readable what another one still writes.

    evicts: whether the object is deleted when its lock is over, before the second writer comes.
    """
    manager = new_manager()
    assert reserve(manager) is L1Error.SUCCESS  # the first writer
    time.sleep(LEASE_SECONDS + 0.5)  # its lock is over
    if evicts and manager.delete([key()])[key()] is not L1Error.SUCCESS:
        return False
    if reserve(manager) is not L1Error.SUCCESS:  # the second writer, which has written nothing yet
        return False
    manager.finish_write([key()], **TAG)  # the first writer ends
    readable: bool = manager.reserve_read([key()])[key()][0] is L1Error.SUCCESS
    return readable


found = [late_reader(), late_writer(evicts=False), late_writer(evicts=True)]
print("the end of a late reader lets an object be deleted that another reads:", found[0])
print("the end of a late writer makes readable what another still writes:", found[1])
print("it does if the object was evicted in between:", found[2])
sys.exit(any(found))
