"""A request: a group of sequences, and how much it generates."""

from collections.abc import Iterable, Iterator

from kvproof.check.oracle.expected import ExpectedSequence, Group


class ExpectedRequest(Group):
    """A request. It is *doomed* when it is over but a step under way still uses its blocks."""

    __slots__ = ("is_doomed", "is_sent", "max_tokens", "num_prompt", "to_come")

    def __init__(self, request_id: int, num_prompt: int, max_tokens: int) -> None:
        super().__init__(request_id)
        self.num_prompt, self.max_tokens, self.is_doomed = num_prompt, max_tokens, False
        self.is_sent = False  # whether its KV is sent elsewhere when it is over
        self.to_come: list[int] = []  # sequences that the scheduler will fork it into

    def everyone(self) -> list[ExpectedSequence]:
        """The members, and the encoder sequence if there is one."""
        return [*self.members, self.encoder] if self.encoder else self.members

    def num_left(self, seq: ExpectedSequence) -> int:
        """How many tokens a sequence is still to generate."""
        return self.max_tokens - (len(seq.tokens) - self.num_prompt)


def unfinished(requests: dict[int, ExpectedRequest]) -> Iterator[ExpectedRequest]:
    """The requests that are not doomed."""
    return (request for request in requests.values() if not request.is_doomed)


def num_gains_max(requests: Iterable[ExpectedRequest]) -> int:
    """The most gains (tokens to sample, requests to end) that are left if nothing forks and nothing arrives."""
    num_gains = 0
    for request in requests:
        own = 1 + sum(max(0, request.num_left(seq)) for seq in request.members)
        num_gains += own + len(request.to_come) * (1 + request.max_tokens)
    return num_gains
