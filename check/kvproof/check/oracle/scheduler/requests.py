"""What the judge knows of each request besides its sequences."""

from collections.abc import Iterator

from kvproof.check.oracle.expected import ExpectedSequence, Group


class Request(Group):
    """A request: how much it shall generate, whether it was aborted while a step was under way, and who is to come."""

    __slots__ = ("is_doomed", "is_sent", "max_tokens", "num_prompt", "to_come")

    def __init__(self, request_id: int, num_prompt: int, max_tokens: int) -> None:
        super().__init__(request_id)
        self.num_prompt, self.max_tokens, self.is_doomed = num_prompt, max_tokens, False
        self.is_sent = False
        self.to_come: list[int] = []  # sequences that the scheduler will fork it into

    def everyone(self) -> list[ExpectedSequence]:
        """The members, and the encoder's sequence if there is one."""
        return [*self.members, self.encoder] if self.encoder else self.members

    def num_left(self, seq: ExpectedSequence) -> int:
        """Tokens that a sequence is still to generate."""
        return self.max_tokens - (len(seq.tokens) - self.num_prompt)


def unfinished(requests: dict[int, Request]) -> Iterator[Request]:
    """Those that nobody has aborted."""
    return (request for request in requests.values() if not request.is_doomed)
