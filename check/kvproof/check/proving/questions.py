"""The questions of proofs: asked by the workers that `--workers` names, or answered by what earlier runs kept."""

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kvproof.check import hosts
from kvproof.check.hosts.choice import is_number, opened
from kvproof.check.hosts.workers import Workers
from kvproof.check.proving.options import SOLVER
from kvproof.check.runs.terminal import output, say
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.answer_cache import AnswerCache, default_file
from kvproof.models.solvers.solving import TRIVIAL, Answer, ProofOutcome, Settings, ask
from kvproof.models.solvers.workers import Asker, Decide, Printer, Question, answers_of, decide_all, is_full

Batch = tuple[Asker, Settings, tuple[Question, ...]]


@contextmanager
def deciding(workers: str) -> Iterator[Decide]:
    """What decides obligations until the end of the block: solver processes of this machine, or a Ray cluster.

    Raises MissingExtra if Ray is not installed, and NoWorkers if there is no Ray at the address.
    """
    if is_number(workers):
        yield partial(decide_all, num_processes=int(workers))
        return
    with opened(workers) as pool:
        assert pool is not None
        yield partial(decide_by, pool)


def decide_by(
    workers: Workers,
    obligations: Iterable[Obligation],
    settings: Settings,
    *,
    asker: Asker = ask,
    printer: Printer = Obligation.question,
    meanwhile: Iterable[object] = (),
) -> Iterator[ProofOutcome]:
    """As `decide_all`, in batches of questions that are units of work. Raises WorkerLost."""
    decided, waiting, asked = deque[ProofOutcome](), dict[Question, list[Obligation]](), deque[Batch]()
    known: dict[Question, Answer] = {}

    def batches() -> Iterator[Batch]:
        questions = list[Question]()
        for obligation in obligations:
            if obligation.is_trivial():
                decided.append(ProofOutcome(obligation, TRIVIAL, is_trivial=True))
                continue
            question = printer(obligation)
            if question in known:
                decided.append(ProofOutcome(obligation, known[question]))
                continue
            if question in waiting:
                waiting[question].append(obligation)
                continue
            if questions and is_full(questions, question):
                asked.append((asker, settings, tuple(questions)))
                yield asked[-1]
                questions.clear()
            waiting[question] = [obligation]
            questions.append(question)
        if questions:
            asked.append((asker, settings, tuple(questions)))
            yield asked[-1]
        deque(meanwhile, maxlen=0)

    for answers in workers.results(answers_to, batches()):
        for question, answer in zip(asked.popleft()[2], answers, strict=True):
            known[question] = answer
            decided.extend(ProofOutcome(obligation, answer) for obligation in waiting.pop(question))
        while decided:
            yield decided.popleft()
    yield from decided


def answers_to(batch: Batch) -> list[Answer]:
    """The answers to a batch of questions, in a worker."""
    asker, settings, questions = batch
    return list(answers_of(asker, questions, settings))


def answer_cache(settings: Settings) -> AnswerCache | None:
    """The answers of earlier runs; None if their file cannot be used, which is reported."""
    handed_on_by = Path(__file__).parent, Path(hosts.__file__).parent
    try:
        return AnswerCache(default_file(), SOLVER, settings, handed_on_by)
    except (OSError, sqlite3.Error, UnicodeDecodeError, RuntimeError) as error:  # RuntimeError: there is no home folder
        say(output(), f"no answers of earlier runs are used: {error}", "yellow")
        return None
