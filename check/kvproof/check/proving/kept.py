"""The result of a run of `kvproof prove`, kept so that a run of the same text takes no longer than a look at the files.

A kept result belongs to one digest: of every file of the specification, of kvproof's own managers, which some proofs
are about, of the prover and of the pin. The settings, the solver and the patterns of `--only` have results of their
own. Only a result in which everything is proved is kept; the solver's answers in it count as cached.

It stands in the file of the answers (`kvproof.models.solvers.answer_cache`), and is as trusted as they are.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

import kvproof.impl
import kvproof.models
import kvproof.spec
from kvproof.check.hosts.workers import digest_of
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.answer_cache import AnswerCache
from kvproof.models.solvers.solving import Answer, ProofOutcome
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

ProofCheck = tuple[ProofOutcome | None, Check]  # a check, and the obligation that it is about, if it is about one


@dataclass(frozen=True)
class KeptOutcome:
    """An obligation without its formulas, and the solver's answer."""

    suite: str
    subject: str
    claim: str
    property: str
    place: str
    seconds: float
    effort: int
    is_trivial: bool


@dataclass(frozen=True)
class KeptCheck:
    """One check, and what was decided, if the check is about an obligation."""

    check: Check
    decided: KeptOutcome | None


def kept(cache: AnswerCache, only: tuple[str, ...]) -> list[ProofCheck] | None:
    """The result of an earlier run with the same files, settings and patterns; None if there is none."""
    text = cache.result(_name(only), digest_of_files())
    if text is None:
        return None
    try:
        return [restored(line) for line in msgspec.json.decode(text, type=list[KeptCheck])]
    except msgspec.MsgspecError:
        return None


def keep(cache: AnswerCache, only: tuple[str, ...], result: Iterable[ProofCheck]) -> None:
    """Keep a result, if everything in it is proved."""
    lines = [KeptCheck(check, None if one is None else decided_of(one)) for one, check in result]
    if all(line.check.verdict is Verdict.PROVED for line in lines):
        cache.add_result(_name(only), digest_of_files(), msgspec.json.encode(lines).decode())


def digest_of_files() -> str:
    """The digest of every file that a result may depend on, with its name, and of Python's version."""
    return f"{sys.version} {digest_of(folders())}"


def folders() -> list[Path]:
    """The folders of all files that a result may depend on."""
    packages = [Path(one) for package in (kvproof.spec, kvproof.impl, kvproof.models) for one in package.__path__]
    return [*packages, Path(__file__).parent]


def _name(only: tuple[str, ...]) -> str:
    return msgspec.json.encode(sorted(only)).decode()


def decided_of(one: ProofOutcome) -> KeptOutcome:
    """What is kept of an outcome."""
    obligation, answer = one.obligation, one.answer
    names = obligation.suite, obligation.subject, obligation.claim, obligation.property, obligation.place
    return KeptOutcome(*names, answer.seconds, answer.effort, one.is_trivial)


def restored(line: KeptCheck) -> ProofCheck:
    """A kept check, with its outcome if it is about an obligation; the solver's answer counts as cached."""
    one = line.decided
    if one is None:
        return None, line.check
    obligation = Obligation(one.suite, one.subject, one.claim, one.property, (), True, one.place)
    answer = Answer(line.check.verdict, one.seconds, one.effort)
    if one.is_trivial:
        return ProofOutcome(obligation, answer, is_trivial=True), line.check
    check = replace(line.check, counts=line.check.counts | {"cached": 1})
    return ProofOutcome(obligation, answer, is_cached=True), check
