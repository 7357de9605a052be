"""Prompts that are embeddings: what is cached of them is found with equal embeddings, and with no others."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.manager import Config
from kvproof.check.search.prompts import Prompts
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find
from kvproof.spec.text.identity import Image, Key
from kvproof.spec.trace import Operation

CONFIG = Config(block_size=2, caching=True, embeddings=True)


class Embeds(BuiltIn):
    """The built-in manager, with an image for each embedding: it knows images by their names and places."""

    capabilities = replace(BuiltIn.capabilities, embeddings=True)

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        rows = [Image(f"{image.name} {row}", row, 1) for image in images for row in range(image.length)]
        super().new(group, seqs, tokens, key, tuple(rows))


class SeesTokensOnly(Embeds):
    """The hash of a block has its tokens, and not its embeddings."""

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        BuiltIn.new(self, group, seqs, tokens, key, ())


class SeesTheLength(Embeds):
    """The hash of a block has the length of the embeddings too, so that a longer prompt finds nothing."""

    def new(self, group: int, seqs: list[int], tokens: list[int], key: Key, images: tuple[Image, ...]) -> None:
        images = tuple(Image(f"{image.name}{image.length}", image.start, image.length) for image in images)
        super().new(group, seqs, tokens, key, images)


def prompt(number: int, name: str, num_tokens: int) -> tuple[Operation, ...]:
    new = "new", number, (number,), (0,) * num_tokens, (None, 0, None), ((name, 0, num_tokens),)
    return new, ("admit", number, num_tokens), ("run", 0)


def test_equal_tokens_with_other_embeddings_must_not_hit() -> None:
    run = [*prompt(1, "A", 5), *prompt(2, "B", 5)]
    finding = finding_of(SeesTokensOnly(), CONFIG, run)

    assert finding is not None
    assert finding.property in ("sharing-equal", "hit-computed")
    assert finding_of(Embeds(), CONFIG, run) is None


def test_a_longer_prompt_with_the_same_embeddings_must_hit() -> None:
    run = [*prompt(1, "A", 5), *prompt(2, "A", 6)]
    finding = finding_of(SeesTheLength(), CONFIG, run)

    assert finding is not None
    assert finding.property == "hit-found"
    assert finding_of(Embeds(), CONFIG, run) is None


def test_embeddings_cover_a_whole_prompt_or_none_of_it() -> None:
    prompts = Prompts(Random(1), CONFIG, 12)
    drawn = {prompts.key_and_images(7, None)[1] for _ in range(60)}
    assert () in drawn
    assert len(drawn) > 2
    assert {image[1:] for images in drawn for image in images} == {(0, 7)}


def test_a_manager_that_hashes_embeddings_is_not_refuted() -> None:
    done = walk(MANAGERS, Embeds(), 1, max_operations=2_000, seconds=60, fixed={"embeddings": True, "caching": True})
    assert done.finding is None, done.finding
    assert done.coverage["hit"] > 10


@pytest.mark.engine
def test_vllm_finds_the_blocks_of_equal_embeddings() -> None:
    download.add("vllm==0.33.0")
    subject: Any = find("vllm-v1==0.33.0")()
    assert finding_of(subject, CONFIG, [*prompt(1, "A", 5), *prompt(2, "B", 5), *prompt(3, "A", 6)]) is None
    assert subject.hits(3) == 4


@pytest.mark.engine
def test_an_image_behind_the_begin_of_a_prompt_leaves_its_tokens_as_they_are() -> None:
    download.add("vllm==0.33.0")
    key: tuple[Any, ...] = (None, 0, None)
    operations: list[Operation] = [
        ("new", 1, (1,), (0, 0), key, (("Q", 3, 2),)),
        ("admit", 1, 2),
        ("run", 0),
        ("new", 2, (2,), (0, 0, 0), key, ()),
        ("admit", 2, 3),
    ]
    assert finding_of(find("vllm-v1==0.33.0")(), CONFIG, operations) is None
