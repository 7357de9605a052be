"""vLLM's V1 scheduler with images, as a subject: releases 0.12 to 0.33.

It is `vllm-v1-scheduler` for a model that reads images: prompts have images, a step computes the outputs of those that
its tokens lie in, and the release's own `EncoderCacheManager` keeps them. The scheduler's budget of a step is the room
of the cache, or no bound if the configuration has none.

Limits: no transfers, no drafts, one KV group of full attention or of a window; images may be computed in part of their
tokens (`disable_chunked_mm_input` is off); every token of an image has an embedding.
"""

import inspect
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.scheduler import ScheduledStep, SchedulerConfig
from kvproof.check.subjects.loading import partial_import
from kvproof.check.subjects.vllm.v1_fakes import Feature, Position
from kvproof.check.subjects.vllm.v1_scheduler import ONE_GROUP, VllmV1Scheduler
from kvproof.spec.text.identity import Image

NO_BOUND = 1 << 20


class Rows(Position):
    """Where an image lies, with an embedding for each of its tokens."""

    def num_embeds(self) -> int:
        return self.length

    get_num_embeds: Any = num_embeds

    def get_embeds_indices_in_range(self, start: int, stop: int) -> tuple[int, int]:
        return start, stop


class RowsOfOld(Rows):
    """The same, in releases where the number of embeddings is no method."""

    get_num_embeds: Any = property(Rows.num_embeds)


class VllmV1Images(VllmV1Scheduler):
    """The scheduler with its cache of encoder outputs."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.name = f"vllm-v1-images {version}"
        self._cache = partial_import.module_of("vllm", "v1.core.encoder_cache_manager").EncoderCacheManager
        is_method = "get_num_embeds()" in inspect.getsource(self._modules.request)
        self._rows: Any = Rows if is_method else RowsOfOld
        self.capabilities = replace(
            self.capabilities,
            **ONE_GROUP,
            images=True,
            encodes_images=True,
            connectors=(),
            block_events=False,
            max_loras=False,
            reset=False,
            sessions=False,
        )

    def make(self, config: SchedulerConfig) -> Any:
        room = config.encoder_room or NO_BOUND
        scheduler = super().make(config)
        scheduler.encoder_cache_manager = self._cache(room)
        scheduler.max_num_encoder_input_tokens = room
        return scheduler

    def features(self, images: tuple[Image, ...]) -> list[Any]:
        found = [Feature(image) for image in images]
        for feature, image in zip(found, images, strict=True):
            feature.mm_position = self._rows(image.start, image.length)
        return found

    def next_step(self) -> tuple[Any, ScheduledStep]:
        output, step = super().next_step()
        encoded = [(int(name), list(places)) for name, places in output.scheduled_encoder_inputs.items()]
        return output, step._replace(encoded=encoded, dropped=list(output.free_encoder_mm_hashes))
