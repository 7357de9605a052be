"""kvproof's own block pool, with its prefix cache, as a subject of pool level."""

from kvproof.check.protocol.capabilities import PoolCan
from kvproof.check.protocol.manager import Assumption, Observation, Refused
from kvproof.check.protocol.pool import PoolConfig
from kvproof.impl.cached_blocks import CachedBlocks
from kvproof.impl.content import Content
from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.impl.errors import DoubleFreeError, NoFreeBlocksError
from kvproof.spec.text.eviction_policy import BLOCK_LRU


class OwnPool:
    """`kvproof.impl.DeviceBlocks`, or `CachedBlocks` with caching, behind the protocol."""

    name = "kvproof-pool"
    capabilities = PoolCan(
        fork=True,
        caching=True,
        reset=True,
        lost_hits=0,
        eviction=BLOCK_LRU,
        double_free_errors=(DoubleFreeError.__name__,),
    )
    assumptions: tuple[Assumption, ...] = (
        Assumption("holds-what-it-frees", "The caller frees and shares only blocks that are held or found."),
    )

    def open(self, config: PoolConfig) -> None:
        num_blocks = config.num_gpu_blocks
        self.refcounts = [0] * num_blocks
        self.cached: CachedBlocks | None = None
        if config.caching:
            self.cached = CachedBlocks("GPU", range(num_blocks), self.refcounts, bytearray(num_blocks), 1)
        self.blocks: DeviceBlocks = self.cached or DeviceBlocks("GPU", range(num_blocks), self.refcounts)

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        try:
            return self.blocks.take(num_blocks)
        except NoFreeBlocksError as error:
            return Refused(str(error))

    def share(self, blocks: list[int]) -> None:
        """pin: what was found may be in the evictor."""
        for block in blocks:
            if self.cached is not None:
                self.cached.pin(block)
            else:
                self.blocks.share([block])

    def free(self, blocks: list[int]) -> None:
        self.blocks.release(blocks)

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        assert self.cached is not None
        content: Content | None = None
        for block, page in zip(blocks, pages, strict=True):
            content = self.cached.contents.intern((content, (page,), None, None))
            self.cached.register(block, content)
            self.cached.mark_computed(block, content)

    def find(self, pages: list[int]) -> list[int]:
        assert self.cached is not None
        found: list[int] = []
        content: Content | None = None
        for page in pages:
            content = self.cached.contents.find((content, (page,), None, None))
            if content is None or content.block_id < 0:
                break
            found.append(content.block_id)
        return found

    def reset_cache(self) -> bool:
        if self.cached is None or not self.cached.is_idle:
            return False
        self.cached.forget_all()
        return True

    def observe_part(self, seqs: list[int]) -> Observation:
        return Observation({}, (self.blocks.num_free, 0))

    def observe(self) -> Observation:
        evictable = [] if self.cached is None else list(self.cached.evictor.in_order())
        return Observation({}, (self.blocks.num_free, 0), (), self.refcounts[:], [*self.blocks.free_ids, *evictable])
