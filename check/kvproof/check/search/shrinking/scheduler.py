"""A shorter run of the loop that refutes the same property in the same way; see `delta_debugging`."""

from collections.abc import Callable, Iterator
from typing import cast

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.protocol.scheduler import SchedulerConfig, SchedulerSubject
from kvproof.check.search.shrinking.delta_debugging import Minimiser
from kvproof.spec.trace import Operation

PLAIN_KEY = (None, 0, None)


class SchedulerMinimiser(Minimiser):
    """Shrinks one counterexample of the loop until a deadline."""

    def simpler(self, operation: Operation) -> Iterator[Operation]:
        """Operations of the same name that say less."""
        return simpler_operations(operation)

    def _fewer_operations(self) -> None:
        self._drain_in_one()
        super()._fewer_operations()

    def _drain_in_one(self) -> None:
        """What follows when nobody arrives any more, said as one operation."""
        names = [operation[0] for operation in self.operations]
        if "stop" in names:
            at = names.index("stop")
            sampled = [rest[0] for name, *rest in self.operations[at:] if rest and name in ("launch", "complete")]
            for tokens in ((0,), *sampled[:1]):
                if self.accepts(self.config, [*self.operations[:at], ("drain", tokens)]):
                    break


def simpler_operations(operation: Operation) -> Iterator[Operation]:
    """Operations of the same name that say less."""
    match operation:
        case ("add", _, _, tokens, _, _, _, _, (num_tokens, is_sent)):
            if num_tokens:
                yield (*operation[:-1], (0, is_sent))
                yield (*operation[:-1], (num_tokens // 2, is_sent))
            if is_sent:
                yield (*operation[:-1], (num_tokens, False))
            yield from ((*simpler, operation[-1]) for simpler in simpler_operations(operation[:-1]))
        case ("add", request, seqs, tokens, max_tokens, key, images, encoder):
            if len(seqs) > 1:
                yield ("add", request, seqs[:1], tokens, max_tokens, key, images, encoder)
            if encoder is not None:
                yield ("add", request, seqs, tokens, max_tokens, key, images, None)
                if len(encoder[1]) > 1:
                    yield ("add", request, seqs, tokens, max_tokens, key, images, (encoder[0], encoder[1][:1]))
            if images:
                yield ("add", request, seqs, tokens, max_tokens, key, (), encoder)
            if tuple(key) != PLAIN_KEY:
                yield ("add", request, seqs, tokens, max_tokens, PLAIN_KEY, images, encoder)
            for keep in sorted({1, len(tokens) // 2, len(tokens) - 1}):
                if 0 < keep < len(tokens):
                    yield ("add", request, seqs, tokens[:keep], max_tokens, key, images, encoder)
            if any(tokens):
                yield ("add", request, seqs, (0,) * len(tokens), max_tokens, key, images, encoder)
            for fewer in sorted({1, max_tokens // 2, max_tokens - 1}):
                if 0 < fewer < max_tokens:
                    yield ("add", request, seqs, tokens, fewer, key, images, encoder)
        case ("launch" | "drain" as name, tokens) if any(tokens) or len(tokens) > 1:
            yield name, (0,)
        case ("complete", tokens, *rest):
            if rest and any(rest):
                yield ("complete", tokens)
                for place, ids in enumerate(rest):
                    for at in range(len(ids)):
                        fewer_ids = ids[:at] + ids[at + 1 :]
                        yield ("complete", tokens, *rest[:place], fewer_ids, *rest[place + 1 :])
            if any(tokens) or len(tokens) > 1:
                yield ("complete", (0,), *rest)


def minimise_loop(
    make: Callable[[], SchedulerSubject],
    config: SchedulerConfig,
    operations: list[Operation],
    finding: Finding,
    seconds: float,
) -> tuple[SchedulerConfig, list[Operation], Finding]:
    """The smallest run found within `seconds` that refutes the same property in the same way."""
    minimiser = SchedulerMinimiser(cast(Callable[[], ManagerSubject], make), config, list(operations), finding)
    minimiser.run(seconds)
    return cast(SchedulerConfig, minimiser.config), minimiser.operations, minimiser.finding
