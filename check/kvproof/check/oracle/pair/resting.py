"""Rest: the network is fair, nobody comes or leaves. Then every request ends, and nothing is left of it."""

from kvproof.check.oracle.enabled import enabled_when
from kvproof.check.oracle.pair.network import NetworkJudge
from kvproof.check.oracle.pair.oracle import PairOracle
from kvproof.check.oracle.pair.serving import StepJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pair import SIDE_NAMES, SIDES

NUM_TURNS = 60  # of a second, in which every request ends; else time passes in longer steps
NUM_LONG_TURNS = 4  # for each request that still waits, and two for each token
NUM_LAST_TURNS = 3  # after all leases are over


class RestJudge:
    """Lets a pair come to rest."""

    def __init__(self, pair: PairOracle, steps: StepJudge, network: NetworkJudge) -> None:
        self.pair, self.steps, self.network = pair, steps, network

    @enabled_when()
    def op_rest(self) -> bool:
        """Everything arrives, and both sides step, until all requests are over and all leases too."""
        pair, seconds = self.pair, self.pair.capabilities.rest_seconds
        for _ in range(NUM_TURNS):
            self._turn(1)
            if not pair.live() and not pair.claims and not pair.moving:
                break
        num_turns = sum(NUM_LONG_TURNS + 2 * one.max_tokens for one in pair.live())
        for _ in range(num_turns):  # one may wait until what the other ones left is over
            if pair.live():
                self._turn(1 + seconds // NUM_LONG_TURNS)
        self._require_all_over()
        for _ in range(NUM_LAST_TURNS):
            self._turn(1 + seconds // NUM_LAST_TURNS)
        for _ in range(NUM_LAST_TURNS):
            self._turn(1)
        self._require_nothing_left()
        pair.coverage["rest"] += 1
        return True

    def _turn(self, seconds: int) -> None:
        pair = self.pair
        for side in SIDES:
            if pair.steps[side] is None:
                self.steps.op_schedule_side(side)
            if not pair.is_launched[side]:
                self.steps.op_launch_side(side)
            self.steps.op_complete_side(side)
        for transfer in list(pair.moving):
            self.network.op_arrive(transfer)
        for message in list(pair.messages):
            self.network.op_deliver(message)
        while self.network.jobs():
            self.network.op_work(0)
        self.network.op_pass(seconds)
        pair.reply.text = ""

    def _require_all_over(self) -> None:
        if waiting := self.pair.live():
            names = ", ".join(f"request {one.number} of {SIDE_NAMES[one.side]}" for one in waiting)
            sentence, values = "$names waits, though all that was on the wire has arrived", {"names": names}
            about = " and ".join(sorted({SIDE_NAMES[one.side] for one in waiting}))
            raise Finding("progress", sentence, call="rest()", values=values, about=about)

    def _require_nothing_left(self) -> None:
        pair = self.pair
        for side in SIDES:
            if held := sorted(pair.observed[side].tables):
                sentence = f"all requests are over, and {SIDE_NAMES[side]} holds blocks of request $observed"
                raise Finding("no-leak-at-rest", sentence, call="rest()", observed=held[0], about="blocks")
            kept = pair.call("total-calls", "kept", side)
            if kept:
                names = sorted(kept)
                values = {"records": "; ".join(f"{name} has {', '.join(map(str, kept[name]))}" for name in names)}
                sentence = f"all requests are over, and {SIDE_NAMES[side]} keeps records: $records"
                about = " and ".join(names)
                raise Finding("no-leak-at-rest", sentence, call="rest()", values=values, about=about)
