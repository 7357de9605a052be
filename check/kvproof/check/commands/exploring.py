"""The explorer as stages: on the specification itself, and in lockstep on a subject."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from kvproof.check.commands.claims import STOPPED, Outcome, about_scopes, decided, met
from kvproof.check.commands.saving import Saving
from kvproof.check.explorer import Exploration, explore_specification, explore_subject
from kvproof.check.scopes import Scope
from kvproof.check.session import Said, Stage, Stint
from kvproof.check.subject import ManagerSubject, Unsupported
from kvproof.spec.verdict import Check, Verdict

SPECIFICATION = "specification"
EXPLORER = "explorer"


def specification_stage(scopes: Mapping[str, Scope], saving: Saving, share: float) -> Stage:
    """Every reachable state of the specification in each scope."""

    def explore(scope: Scope, seconds: float, progress: Callable[[int], None]) -> Exploration:
        return explore_specification(scope, seconds=seconds, progress=progress)

    promised = about_scopes(SPECIFICATION, scopes, None)
    return Stage(SPECIFICATION, share, promised, _searches(SPECIFICATION, scopes, promised, explore, saving))


def subject_stage(
    make: Callable[[], ManagerSubject],
    subject: ManagerSubject,
    scopes: Mapping[str, Scope],
    saving: Saving,
    share: float,
) -> Stage:
    """Every reachable state of the subject in each scope, explained by the specification."""

    def explore(scope: Scope, seconds: float, progress: Callable[[int], None]) -> Exploration:
        return explore_subject(make(), scope, seconds=seconds, progress=progress)

    promised = about_scopes(EXPLORER, scopes, subject)
    return Stage(EXPLORER, share, promised, _searches(EXPLORER, scopes, promised, explore, saving))


def _searches(
    judge: str,
    scopes: Mapping[str, Scope],
    promised: list[Check],
    explore: Callable[[Scope, float, Callable[[int], None]], Exploration],
    saving: Saving,
) -> Callable[[Stint], Iterator[Said]]:
    def run(stint: Stint) -> Iterator[Said]:
        deadline = time.monotonic() + stint.seconds
        seen, num_states, is_cut_short = Counter[str](), 0, False
        for name, scope in scopes.items():
            mine = [check for check in promised if check.id.endswith(f"/{name}")]
            if is_cut_short:
                yield from decided(judge, mine, Outcome(Verdict.UNKNOWN, {}, 0.0, STOPPED), name)
                continue
            try:
                done = explore(
                    scope,
                    max(0.0, deadline - time.monotonic()),
                    lambda count, before=num_states: stint.advance(before + count),  # type: ignore[misc]
                )
            except Unsupported as error:
                reason = f"the subject has no such configuration: {error}"
                yield from decided(judge, mine, Outcome(Verdict.UNSUPPORTED, {}, 0.0, reason), name)
                continue
            num_states += done.states
            seen.update(done.fired)
            seen.update(done.witnesses)
            is_cut_short = done.finding is not None
            yield from decided(judge, mine, _outcome(judge, done, saving), name)
        yield from met(judge, seen, {})

    return run


def _outcome(judge: str, done: Exploration, saving: Saving) -> Outcome:
    counts = {"states": done.states, "transitions": done.transitions}
    if done.finding is not None:
        found = saving.save(judge, done.config, done.operations, done.finding, done.transitions)
        return Outcome(Verdict.UNKNOWN, counts, done.seconds, STOPPED, [found])
    if done.is_exhausted:
        return Outcome(Verdict.EXHAUSTED, counts, done.seconds)
    reason = f"the time ended at depth {done.depth}, before every state was reached"
    return Outcome(Verdict.UNKNOWN, counts, done.seconds, reason)
