"""SGLang's HiCache as a subject of store level: the host pool below its prefix cache, with a storage below it.

The host pool, the cache controller and the tree are the release's own. A slot is a page of the host pool. A key is a
page of a sequence together with the pages before it (`paths`). The threads of the controller do not run by themselves:
the adapter runs each of them until it waits, and an event of the device happens when the judge says that the copy has
landed. `machine` has the stand-ins for the device, the threads and the storage, `release` puts them into a release, and
`store` has the calls of a store. `radix` calls the tree: `HiRadixCache`, and in later releases `UnifiedRadixCache`.
"""
