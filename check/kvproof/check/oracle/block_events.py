"""What a listener believes who hears the events of a manager's or a scheduler's prefix cache, and nothing else.

The listener keeps the names that were stored and not removed, for each KV group. To hear twice that a name was stored
or removed changes nothing. After each call it must believe what the specification has: each name stands for a content
that is cached. If the subject declares that a look-up misses nothing (`lost_hits`), the name of each content that can
be hit is known too, but for what the specification leaves open, and for groups whose tokens read nothing before them.

A name that is stored also says where it belongs: behind which block, and which tokens it adds. Both must be those of
its content. In a group of full attention, whose blocks are cached from the first one on, a subject that misses nothing
has reported the block before as stored, and not as removed since; the other groups give up what they do not read again.
"""

from collections.abc import Callable, Iterable, Sequence
from math import gcd
from typing import Any, NamedTuple

from kvproof.check.oracle.events import PROPERTY
from kvproof.check.oracle.firing import SpecRunner
from kvproof.check.protocol.adapter_check import check_answer, require_length
from kvproof.check.protocol.block_events import BlockEvent, ClearedBlocks, RemovedBlock, StoredBlock
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import FULL
from kvproof.spec.text import operations
from kvproof.spec.text.identity import images_of, token_of

CAUSE = "events"  # the same fault shows after many calls


class NamedContent(NamedTuple):
    """A content of a KV group, as the subject names it. before: the name of the block before; None if it has none."""

    kv_group: int
    name: str
    before: str | None
    tokens: tuple[int, ...]


class BlockListener:
    """What was heard.

    there: for each KV group, the names that were stored and not removed. caches_all: whether the subject caches each
    block as soon as it can be hit. A scheduler may do so later with blocks that were loaded or drafted, or computed by
    a step whose results it has not read. is_early: whether it may cache a block before the specification does, as a
    scheduler does with accepted drafts; then names may be known that no content has.
    """

    def __init__(self, explainer: SpecRunner, call: Callable[..., Any], caches_all: bool) -> None:
        self.explainer, self.state, self.config, self._call = explainer, explainer.state, explainer.config, call
        self.there: list[set[str]] = [set() for _ in self.config.kv_groups]
        self.ever: set[tuple[int, str]] = set()
        self.caches_all = caches_all
        self.is_early = getattr(self.config, "speculative_tokens", 0) > 0  # of a scheduler
        self._unit = gcd(*self.config.block_sizes)
        self._named: dict[int, NamedContent] = {}  # by identity
        self._identities: dict[tuple[int, str], int] = {}  # by KV group and name

    def judge(self, context: str) -> None:
        """Hear what was reported, and compare what the listener believes with what is cached. Raises Finding."""
        blocks = range(self.config.num_gpu_blocks)
        possible = operations.hittable_identities(self.state, blocks, True)
        self._learn(possible)
        events: list[BlockEvent] = self._call("total-calls", "block_events")
        check_answer("block_events", events, list)
        require_length("block_events()", len(events), self.config.num_gpu_blocks, "block_events")
        for event in events:
            self._hear(event, context)
        unsure = self.explainer.maybe_evicted | self.explainer.unaligned | self.explainer.forgotten
        certain = operations.hittable_identities(self.state, (b for b in blocks if b not in unsure), False)
        self._compare(certain, possible, context)

    # Names ---------------------------------------------------------------------------------------------------------

    def _learn(self, contents: Iterable[int]) -> None:
        """Ask for the names of the contents that have none yet."""
        unknown = [content for content in contents if content not in self._named]
        if not unknown:
            return
        for content, root, items in self.explainer.identities.paths(unknown):
            tokens = [token_of(item) for item in items]
            names = self._call("total-calls", "block_names", tokens, root.key, images_of(items))
            check_answer("block_names", names, list)
            if len(names) != len(tokens) // self._unit or not all(type(name) is str for name in names):
                text = f"block_names must return a string for each of {len(tokens) // self._unit} blocks"
                raise AdapterError(f"{text}; it returned {len(names)} answers", "block_names")
            size = self.config.block_sizes[root.kv_group]
            before = names[(len(tokens) - size) // self._unit - 1] if len(tokens) > size else None
            self._named[content] = named = NamedContent(root.kv_group, names[-1], before, tuple(tokens[-size:]))
            self._identities[named.kv_group, named.name] = content

    # Events --------------------------------------------------------------------------------------------------------

    def _hear(self, event: BlockEvent, context: str) -> None:
        check_answer("block_events (each one)", event, StoredBlock, RemovedBlock, ClearedBlocks)
        if isinstance(event, ClearedBlocks):
            for names in self.there:
                names.clear()
            return
        check_answer("block_events (each KV group)", event.kv_group, int)
        check_answer("block_events (each name)", event.name, str)
        if not 0 <= event.kv_group < len(self.there):
            raise AdapterError(f"block_events reports KV group {event.kv_group} of {len(self.there)}", "block_events")
        if isinstance(event, RemovedBlock):
            self.there[event.kv_group].discard(event.name)
            return
        if event.tokens is not None:
            self._judge_place(event, event.tokens, context)
        self.there[event.kv_group].add(event.name)
        self.ever.add((event.kv_group, event.name))

    def _judge_place(self, event: StoredBlock, tokens: Sequence[int], context: str) -> None:
        """What is said of the place of a block must be so."""
        check_answer("block_events (each parent)", event.parent, str, type(None))
        content = self._identities.get((event.kv_group, event.name))
        if content is None:  # it is cached no longer
            return
        named = self._named[content]
        if event.parent != named.before:
            said = "no block" if event.parent is None else "a block that is not the one before it"
            raise self._finding(f"$content is reported as stored behind {said}", content, context, "a parent")
        if list(tokens) != list(named.tokens):
            sentence = "$content is reported as stored with the tokens $observed"
            raise self._finding(sentence, content, context, "tokens", list(tokens))
        is_full = self.config.kinds[event.kv_group] == FULL and not self.config.windows[event.kv_group]
        names = {None, *self.there[event.kv_group]}
        if self.caches_all and is_full and event.parent not in names:
            sentence = "$content is reported as stored behind a block that is not"
            raise self._finding(sentence, content, context, "a parent")

    # Comparison ----------------------------------------------------------------------------------------------------

    def _compare(self, certain: set[int], possible: set[int], context: str) -> None:
        """Who heard the events must believe what is cached. certain: what can be hit; possible: what may be cached."""
        allowed = {(named.kv_group, named.name) for named in map(self._named.__getitem__, possible)}
        gone = {(group, name) for group, names in enumerate(self.there) for name in names} - allowed
        if gone and not self.is_early:
            if known := [self._identities[one] for one in gone if one in self._identities]:
                sentence = "$content can be found no longer, and is not reported as removed"
                raise self._finding(sentence, min(known), context, "it went")
            sentence = "a name is reported as stored that no cached content has"
            raise Finding(PROPERTY, sentence, CAUSE, call=context, about="a name")
        for content in sorted(certain if self.caches_all else ()):
            named = self._named[content]
            if self.config.windows[named.kv_group] != 1 and named.name not in self.there[named.kv_group]:
                was_there = (named.kv_group, named.name) in self.ever
                said = "reported as removed" if was_there else "not reported as stored"
                raise self._finding(f"$content can be found, and is {said}", content, context, "it is there")

    def _finding(self, sentence: str, content: int, context: str, about: str, observed: Any = None) -> Finding:
        described = f"the content with {self.explainer.identities.describe(content)}"
        values = {"content": described}
        return Finding(PROPERTY, sentence, CAUSE, call=context, about=about, observed=observed, values=values)
