"""The judge of caches of encoder outputs: it is the scheduler that asks the cache, and the worker that obeys it."""

from collections import Counter

from kvproof.check.oracle.enabled import Reply, RuledJudge, enabled_when, observation_checked
from kvproof.check.oracle.encoder.rules import CACHE, WORKER, EncoderRules
from kvproof.check.oracle.encoder.showing import compare
from kvproof.check.oracle.store.recency import WITNESS, KeyRecency
from kvproof.check.oracle.subject_calls import SubjectCalls
from kvproof.check.protocol.adapter_check import capabilities_of, check_adapter, check_answer
from kvproof.check.protocol.encoder import (
    ENCODER_CALLS,
    EncoderConfig,
    EncoderObservation,
    EncoderOperation,
    EncoderSubject,
    Input,
    check_encoder_observation,
)
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.reports.frames import Lane, PoolFrame, StepFrame
from kvproof.spec.text.eviction_policy import KEY_LRU

NAME = "encoder outputs"
PROPERTY = "events-agree"


class EncoderJudge(RuledJudge):
    """One opened cache in lockstep with the specification.

    explained: the specification. observed: what the cache showed last. taken: the contents that were taken in this
    step. evicted: how often each was evicted since the last report. recency: when each content was used.
    """

    kinds = EncoderOperation.kinds()
    config: EncoderConfig

    def __init__(self, subject: EncoderSubject, config: EncoderConfig, identities: object = None) -> None:
        check_adapter(subject, ENCODER_CALLS)
        super().__init__(Reply(), self)
        self.subject, self.config, self.capabilities = subject, config, capabilities_of(subject)
        self.coverage, self.notes = Counter[str](), Counter[str]()
        self.is_sparse = False
        calls = SubjectCalls(subject)
        self.call = calls.call
        calls.open(config)
        self.explained = EncoderRules(config, self.coverage)
        self.recency = KeyRecency()
        self.taken: set[int] = set()
        self.evicted: Counter[int] = Counter()
        self._observe()
        self.check_observed()
        self.settle("open")

    # What the cache shows --------------------------------------------------------------------------------------------

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""
        check_encoder_observation(self.observed)

    @observation_checked
    def compare_all(self, context: str) -> None:
        """Compare everything that the cache shows."""
        self.settle(context)

    def settle(self, context: str) -> None:
        """A call is explained: what the cache does not show any more was evicted; the rest must be as it shall be."""
        self.recency.now += 1
        self._observe()
        gone = [content for content in self.explained.contents(CACHE) if content not in self.observed.refs]
        for content in gone:
            self.explained.remove(content, CACHE, context)
            self.evicted[content] += 1
            self.coverage["evicted"] += 1
        compare(self.explained, self.observed, context)
        if gone and self.capabilities.eviction == KEY_LRU:
            self.coverage[WITNESS] += self.recency.judge(gone, self.explained.is_unreferenced, context)
        self.recency.forget(gone)
        self.coverage["pool full"] += not self.observed.free

    def _observe(self) -> None:
        self.observed: EncoderObservation = self.call("total-calls", "observe")
        check_answer("observe", self.observed, EncoderObservation)

    def _answered(self, name: str, context: str, *arguments: int) -> bool:
        answer = self.call("total-calls", name, *arguments)
        check_answer(name, answer, bool)
        return bool(answer)

    # Requests --------------------------------------------------------------------------------------------------------

    @enabled_when()
    def op_bring(self, request: int, contents: tuple[int, ...]) -> bool:
        """A new request with images."""
        inputs = [Input(content, self.config.length_of(content)) for content in contents]
        if request in self.explained.inputs or not self.explained.has_room_for(inputs):
            return False
        self.explained.begin(request, inputs)
        self.call("total-calls", "begin_request", request, list(inputs))
        self.coverage["an image twice in a request"] += len(set(contents)) < len(contents)
        self.settle(f"begin_request({request})")
        return True

    @enabled_when(about=lambda judge: judge.explained.inputs)
    def op_encode(self, request: int, first: int, number: int, budget: int) -> bool:
        """A step needs the outputs of some inputs: those that are not there are taken, as far as there is room."""
        if first >= len(self.explained.inputs[request]):
            return False
        taken, again = self._ask(request, first, number, budget)
        for place in taken:
            context = f"take_room(request {request}, input {place})"
            self.call("total-calls", "take_room", request, place)
            content = self.explained.inputs[request][place].content
            self.explained.take(request, place, context)
            self.recency.used([content])
            self.coverage["taken"] += 1
            self.coverage["taken in the step that evicted it"] += content in self.evicted
            self.taken.add(content)
            self.settle(context)
        for place in again:
            self._find(request, place)
        return True

    @enabled_when(about=lambda judge: judge.explained.inputs)
    def op_encode_in_vain(self, request: int, first: int, number: int, budget: int) -> bool:
        """A step needs outputs, and then has no blocks for the tokens."""
        if first >= len(self.explained.inputs[request]):
            return False
        self._ask(request, first, number, budget)
        self._release_all(request, "release_all")
        return True

    def _ask(self, request: int, first: int, number: int, budget: int) -> tuple[list[int], list[int]]:
        """The places for which there is room, and those with a content of these, as a scheduler asks for them."""
        inputs, texts = self.explained.inputs[request], list[str]()
        taken: list[int] = []
        again: list[int] = []
        num_taken = 0
        for place in range(first, min(first + number, len(inputs))):
            content, length = inputs[place]
            if any(inputs[other].content == content for other in taken):
                again.append(place)
            elif self._find(request, place):
                texts.append(f"input {place} is there")
            elif self.explained.has(content) or not self._has_room(request, place, budget, num_taken):
                texts.append(f"no room for input {place}")
                break
            else:
                taken.append(place)
                num_taken, budget = num_taken + length, budget - length
                texts.append(f"input {place} is computed")
        self.reply.text = "; ".join(texts)
        return taken, again

    def _find(self, request: int, place: int) -> bool:
        context = f"has_output(request {request}, input {place})"
        content = self.explained.inputs[request][place].content
        is_cached, is_unreferenced = self.explained.has(content), self.explained.is_unreferenced(content)
        found = self._answered("has_output", context, request, place)
        if found:
            self.explained.refer(request, place, context)
            self.recency.used([content])
            self.coverage["hit"] += 1
            self.coverage["hit on an unreferenced output"] += is_unreferenced
        elif is_cached:
            self.notes["hit-complete"] += 1
            if self.capabilities.lost_hits is not None:
                sentence = f"the answer is $observed, and the output of content {content} is cached"
                raise Finding("hit-found", sentence, call=context, observed=found)
        self.settle(context)
        return found

    def _has_room(self, request: int, place: int, budget: int, num_taken: int) -> bool:
        context = f"has_room(request {request}, input {place}, budget {budget}, {num_taken} taken before)"
        length, unused = self.explained.inputs[request][place].length, self.explained.num_unused()
        has_room = self._answered("has_room", context, request, place, budget, num_taken)
        if has_room and length > budget:
            sentence = "the answer is yes for $observed embeddings, and the step computes $expected at most"
            raise Finding("admission-sound", sentence, call=context, expected=budget, observed=length)
        wanted, slack = length + num_taken, self.capabilities.refusal_slack
        if has_room and wanted > unused:
            sentence = "the answer is yes for $observed embeddings, and $expected are free or can be evicted"
            raise Finding("admission-sound", sentence, call=context, expected=unused, observed=wanted)
        if not has_room and slack is not None and length <= budget and wanted + slack <= unused:
            sentence = "the answer is no for $observed embeddings, and $expected are free or can be evicted"
            raise Finding("refusal-needed", sentence, call=context, expected=unused, observed=wanted)
        self.coverage["refused"] += not has_room and length <= budget
        self.coverage["refused for the budget"] += length > budget
        self.settle(context)
        return has_room

    # Releasing -------------------------------------------------------------------------------------------------------

    @enabled_when(about=lambda judge: judge.explained.inputs)
    def op_read_inputs(self, request: int, number: int) -> bool:
        """The request has read outputs that were computed in an earlier step."""
        inputs = self.explained.inputs[request]
        places = [place for place in self.explained.places_of(request) if inputs[place].content not in self.taken]
        for place in places[:number]:
            context = f"release_output(request {request}, input {place})"
            self.call("total-calls", "release_output", request, place)
            self.recency.perhaps_used([inputs[place].content])
            self.explained.release(request, place, context)
            self.settle(context)
        self.coverage["read"] += bool(places)
        return bool(places)

    @enabled_when(about=lambda judge: judge.explained.inputs)
    def op_put_back(self, request: int) -> bool:
        """A request is preempted."""
        inputs = self.explained.inputs[request]
        contents = {inputs[place].content for place in self.explained.places_of(request)}
        self.coverage["preempted in the step that takes"] += not self.taken.isdisjoint(contents)
        self._release_all(request, "release_all")
        return True

    @enabled_when(about=lambda judge: judge.explained.inputs)
    def op_leave(self, request: int) -> bool:
        """A request is over."""
        self.coverage["ended with references"] += bool(self.explained.places_of(request))
        self._release_all(request, "end_request")
        return True

    def _release_all(self, request: int, name: str) -> None:
        context, inputs = f"{name}({request})", self.explained.inputs[request]
        self.call("total-calls", name, request)
        self.recency.perhaps_used(inputs[place].content for place in self.explained.places_of(request))
        (self.explained.end if name == "end_request" else self.explained.release_all)(request, context)
        self.settle(context)

    # The worker ------------------------------------------------------------------------------------------------------

    @enabled_when()
    def op_end_step(self) -> bool:
        """The worker removes what is reported, and computes what was taken; then it has exactly what is cached."""
        context, explained = "take_dropped()", self.explained
        dropped = self.call("total-calls", "take_dropped")
        if not isinstance(dropped, list) or any(type(content) is not int for content in dropped):
            raise AdapterError(f"take_dropped must return a list of ints; it returned {dropped}", "take_dropped")
        self.settle(context)
        self._judge_report(Counter(dropped), context)
        self.reply.text = f"drops {sorted(set(dropped))}" if dropped else "drops nothing"
        self.coverage["reported"] += bool(dropped)
        for content in explained.contents(WORKER):
            if content in dropped:
                explained.remove(content, WORKER, context)
        self._require_reported(context)
        for content in sorted(self.taken):
            if explained.has(content) and not explained.has(content, WORKER):
                explained.compute(content, context)
        self._require_kept(context)
        self.taken.clear()
        self.evicted.clear()
        return True

    def _judge_report(self, dropped: Counter[int], context: str) -> None:
        for content, number in sorted(dropped.items()):
            if number > self.evicted[content]:
                sentence = f"the report names content {content} $observed times, and it was evicted $expected times"
                expected = self.evicted[content]
                raise Finding(PROPERTY, sentence, call=context, expected=expected, observed=number, about="not evicted")
            if self.explained.has(content) and not self.capabilities.reports_before_computing:
                sentence = f"the report names content {content}, whose output is cached"
                raise Finding(PROPERTY, sentence, call=context, about="cached")

    def _require_reported(self, context: str) -> None:
        for content, (key, *_) in self.explained.keys.items():
            if self.explained.must_go(self.explained.state, CACHE, WORKER, key):
                sentence = f"the output of content {content} was evicted, and the worker keeps it: no report names it"
                raise Finding(PROPERTY, sentence, call=context, about="kept")

    def _require_kept(self, context: str) -> None:
        for content, (key, *_) in self.explained.keys.items():
            if self.explained.must_come(self.explained.state, CACHE, WORKER, key):
                sentence = f"the output of content {content} is cached, and the worker was made to remove it"
                raise Finding(PROPERTY, sentence, call=context, about="lost")

    @enabled_when(lambda judge: not judge.taken and not judge.evicted)
    def op_forget_outputs(self) -> bool:
        """Between two steps, the cache and the worker forget everything."""
        context = "forget_outputs()"
        self.call("total-calls", "forget_outputs")
        self.recency.forget(self.explained.contents(CACHE))
        self.explained.forget_all(context)
        self.coverage["forgot"] += 1
        self.settle(context)
        return True


def frame_of_encoder(judge: EncoderJudge, finding: Finding | None) -> StepFrame:
    """One lane for each output that is cached, or that the worker has."""
    explained, lanes = judge.explained, list[Lane]()
    refs = explained.refs()
    for content in sorted(explained.keys):
        places = [name for tier, name in ((CACHE, "cached"), (WORKER, "at the worker")) if explained.has(content, tier)]
        if places:
            by = ", ".join(f"request {request}" for request in refs.get(content, []))
            lanes.append(Lane(f"content {content}", f"{' and '.join(places)}{by and f', referenced by {by}'}"))
    free, observed = len(explained.free[CACHE]), judge.observed.free
    pool = PoolFrame(NAME, free, observed if finding is not None and observed != free else None)
    return StepFrame("", tuple(lanes), (), (pool,))
