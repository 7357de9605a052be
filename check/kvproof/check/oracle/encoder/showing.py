"""What a cache of encoder outputs shows must be what the specification has."""

from kvproof.check.oracle.encoder.rules import CACHE, EncoderRules
from kvproof.check.protocol.encoder import EncoderObservation
from kvproof.check.protocol.finding import Finding, direction


def compare(explained: EncoderRules, observed: EncoderObservation, context: str) -> None:
    """Compare what is shown after a call. Raises Finding."""
    expected = explained.refs()
    for content in observed.refs:
        if content not in expected:
            sentence = f"the cache shows the output of content {content}, which nobody has computed since it was gone"
            raise Finding("frame-kept", sentence, call=context)
    for content, requests in expected.items():
        shown = sorted(set(observed.refs[content]))
        if shown != requests:
            sentence = f"the output of content {content} is referenced by requests $expected; the cache shows $observed"
            about = direction([(len(requests), len(shown))])
            raise Finding("refcount-exact", sentence, call=context, expected=requests, observed=shown, about=about)
    _compare_places(explained, observed, context)
    _compare_room(explained, observed, context)


def _compare_places(explained: EncoderRules, observed: EncoderObservation, context: str) -> None:
    if observed.places is None:
        return
    expected = explained.places()
    shown = {request: sorted(set(places)) for request, places in observed.places.items() if places}
    for request in dict.fromkeys((*expected, *shown)):
        places, others = expected.get(request, []), shown.get(request, [])
        if places != others:
            at_rest = not explained.inputs
            sentence = f"request {request} references its inputs $expected; the cache has $observed"
            property = "no-leak-at-rest" if at_rest else "refcount-exact"
            about = direction([(len(places), len(others))])
            raise Finding(property, sentence, call=context, expected=places, observed=others, about=about)


def _compare_room(explained: EncoderRules, observed: EncoderObservation, context: str) -> None:
    free, unused = len(explained.free[CACHE]), explained.num_unused()
    if observed.free != free:
        is_leak = not explained.inputs and observed.free < free
        sentence = "$expected embeddings are free, and the cache counts $observed"
        property, about = "no-leak-at-rest" if is_leak else "conservation", direction([(free, observed.free)])
        raise Finding(property, sentence, call=context, expected=free, observed=observed.free, about=about)
    if observed.reclaimable is not None and observed.reclaimable != unused:
        sentence = "$expected embeddings are free or can be evicted, and the cache counts $observed"
        about = direction([(unused, observed.reclaimable)])
        raise Finding(
            "conservation", sentence, call=context, expected=unused, observed=observed.reclaimable, about=about
        )
