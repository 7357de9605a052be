"""Stand-ins for the requests of vLLM: all that the V1 KV cache manager reads of a request.

The names are those of `vllm/v1/request.py`, releases 0.6.5 to 0.33. Where a request carries its block hashes (from 0.11
on), the release's own hasher makes them; before, the manager itself hashes what it finds here.
"""

from collections.abc import Callable
from typing import Any

from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.spec.text.identity import Image, Key, item_at


class Position:
    """Where an image lies; a mapping in releases before 0.8.3."""

    __slots__ = ("is_embed", "length", "offset")

    def __init__(self, offset: int, length: int) -> None:
        self.offset, self.length, self.is_embed = offset, length, None

    def __getitem__(self, name: str) -> int:
        return int(getattr(self, name))


class Feature:
    """An image of a request."""

    modality, data = "image", None

    def __init__(self, image: Image) -> None:
        self.identifier = self.mm_hash = image.name
        self.mm_position = Position(image.start, image.length)


class Adapter:
    """A LoRA request: an id of its own, and a name that another may have too."""

    def __init__(self, key: Key) -> None:
        self.name = self.lora_name = key.adapter_name
        self.adapter_id = self.lora_int_id = key.adapter_id
        self.path = self.lora_path = f"adapter-{key.adapter_id}"


class FakeRequest:
    """What a manager reads of a request."""

    sampling_params = StubObject(prompt_logprobs=None, skip_reading_prefix_cache=False)
    pooling_params = kv_transfer_params = session_id = None
    num_external_computed_tokens = num_in_flight_tokens = num_output_placeholders = num_preemptions = 0
    shared_prefix_boundary = 0
    kv_cache_report_mode = "incremental"
    skip_reading_prefix_cache = False

    def __init__(
        self,
        seq_id: int,
        tokens: list[int],
        key: Key,
        images: tuple[Image, ...],
        hasher: Callable[[Any], Any] | None,
        has_embeddings: bool = False,
    ) -> None:
        """has_embeddings: the images stand for embeddings of the prompt, which then has no tokens."""
        self.request_id = str(seq_id)
        self.all_token_ids = tokens[:]
        self.prompt_embeds: list[Any] | None = None
        self._prompt_embeds_per_block_hashes: dict[tuple[int, int], bytes] = {}
        if has_embeddings and images and not images[0].start:  # else it is an image of a prompt of tokens
            stop = images[-1].start + images[-1].length
            self.prompt_embeds = [item_at(at, token, images) for at, token in enumerate(tokens[:stop])]
            self.all_token_ids = [0] * len(self.prompt_embeds) + tokens[stop:]
            images = ()
        self.num_prompt_tokens = len(tokens)
        self.num_computed_tokens = 0
        self.status: Any = None
        self.spec_token_ids: list[int] = []
        self.lora_request = Adapter(key) if key.adapter_id else None
        self.cache_salt = key.salt
        self.mm_features = [Feature(image) for image in images]
        self.mm_positions = [feature.mm_position for feature in self.mm_features]
        self.mm_hashes = [feature.mm_hash for feature in self.mm_features]
        self.mm_inputs = self.mm_features
        self.block_hashes: list[Any] = []
        self.kv_block_hashes: list[Any] = []
        self._hasher = hasher
        self._hash()

    def _hash(self) -> None:
        if self._hasher is not None:
            self.block_hashes.extend(self._hasher(self))

    def append_token(self, token: int) -> None:
        self.all_token_ids.append(token)
        self._hash()

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    num_tokens_with_spec = num_tokens

    @property
    def has_encoder_inputs(self) -> bool:
        return bool(self.mm_features)

    def set_kv_block_hashes(self, hashes: list[Any]) -> None:
        """In 0.7: the manager keeps its hashes with the request."""
        self.kv_block_hashes = hashes

    def append_kv_block_hashes(self, block_hash: Any) -> None:
        """In 0.7: add one hash."""
        self.kv_block_hashes.append(block_hash)
