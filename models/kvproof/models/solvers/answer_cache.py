"""Answers of the solver, kept between runs, so that an unchanged text is proved again in seconds.

An entry belongs to one question: its key is a digest of the hypotheses, the goal, the solver with its version, the
settings, and kvproof's code that asks solvers and hands their answers on, since a fault there must not outlive its
repair. Only proofs are kept; a question without a proof is asked again, and a refutation is replayed anyway. So an
entry can be wrong only if somebody wrote it. Who can write to the file could also change the program: the file is used
only if it belongs to the user and nobody else can write to it. An entry that is damaged does not fit its own digest,
and is no entry.

The file also has whole results, for which not even the questions need to be made again. What a result belongs to is
decided by who keeps it.

The file is `answers.sqlite` in `$XDG_CACHE_HOME/kvproof`, by default `~/.cache/kvproof`. If it cannot be used, every
question is asked.
"""

import functools
import hashlib
import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from kvproof.models import obligation
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.solving import Answer, ProofOutcome, Settings
from kvproof.spec.cache_folder import cache_folder, require_private
from kvproof.spec.database import has_tables_of, require_regular_journals
from kvproof.spec.verdict import Verdict

FORMAT = 2
SECONDS_MAX = 5.0  # to wait for another process that writes
TABLES = (
    "CREATE TABLE answers (key TEXT PRIMARY KEY, answer TEXT, digest TEXT)",
    "CREATE TABLE results (key TEXT PRIMARY KEY, files TEXT, result TEXT, digest TEXT)",
)
Question = tuple[str, str]
Decide = Callable[[Iterable[Obligation], Callable[[Obligation], Question]], Iterator[ProofOutcome]]


def default_file() -> Path:
    """The file of the user's answers. Raises RuntimeError if the user has no home."""
    return cache_folder() / "answers.sqlite"


class AnswerCache:
    """The kept answers of one solver with the same settings. solver: its name and version. handed_on_by: folders of
    further code between the solver and this cache, such as that of workers.

    Raises OSError, sqlite3.Error or UnicodeDecodeError (a message of SQLite) if the file cannot be used.
    """

    def __init__(self, file: Path, solver: str, settings: Settings, handed_on_by: tuple[Path, ...] = ()) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (file.parent, file):
            if path.exists():
                require_private(path)
        asked = settings.seed, settings.effort_max, settings.wants_core, settings.is_alone
        self._context = [FORMAT, code_digest(handed_on_by), solver, *asked]
        require_regular_journals(file)
        self._database = sqlite3.connect(file, timeout=SECONDS_MAX, isolation_level=None)
        with ExitStack() as on_error:
            on_error.callback(self._database.close)
            file.chmod(0o600)
            self._database.execute("PRAGMA synchronous = OFF")  # a lost entry is asked again
            self._database.execute("DROP TABLE IF EXISTS units")  # earlier versions of kvproof had it
            for table in TABLES:
                self._database.execute(table.replace("TABLE", "TABLE IF NOT EXISTS"))
            if not has_tables_of(self._database, TABLES):
                raise sqlite3.DatabaseError(f"{file} has other tables than kept answers")
            self._database.execute("BEGIN")
            on_error.pop_all()

    def get(self, question: Question) -> Answer | None:
        """The proof that is kept for a question; None if there is none."""
        key = self._key(question)
        with suppress(sqlite3.Error, ValueError, TypeError):
            row = self._database.execute("SELECT answer, digest FROM answers WHERE key = ?", (key,)).fetchone()
            if row is not None and row[1] == _digest(key, *map(_text, row[:1])):
                seconds, effort, core = json.loads(row[0])
                return Answer(Verdict.PROVED, seconds, effort, core=None if core is None else tuple(core))
        return None

    def add(self, question: Question, answer: Answer) -> None:
        """Keep an answer, if it is a proof."""
        if answer.verdict is Verdict.PROVED:
            key, text = self._key(question), json.dumps([answer.seconds, answer.effort, answer.core])
            with suppress(sqlite3.Error):
                row = key, text, _digest(key, text)
                self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", row)

    def result(self, name: str, files: str) -> str | None:
        """The result that is kept under a name, if it belongs to files of this digest."""
        key = self._key(("result", name))
        with suppress(sqlite3.Error, TypeError):
            row = self._database.execute("SELECT files, result, digest FROM results WHERE key = ?", (key,)).fetchone()
            if row is not None and row[0] == files and row[2] == _digest(key, *map(_text, row[:2])):
                return _text(row[1])
        return None

    def add_result(self, name: str, files: str, result: str) -> None:
        """Keep a result under a name. It replaces the one that was kept before."""
        key = self._key(("result", name))
        with suppress(sqlite3.Error):
            row = key, files, result, _digest(key, files, result)
            self._database.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", row)

    def close(self) -> None:
        """Write what was added."""
        with suppress(sqlite3.Error):
            self._database.execute("COMMIT")
        self._database.close()

    def _key(self, question: Question) -> str:
        return _digest(*map(str, self._context), *question)


@functools.cache
def code_digest(handed_on_by: tuple[Path, ...] = ()) -> str:
    """A digest of the code that asks solvers, reads their answers and hands them on."""
    folders = Path(__file__).parent, Path(obligation.__file__).parent, *handed_on_by
    return _digest(*(path.read_text(encoding="utf-8") for each in folders for path in sorted(each.glob("*.py"))))


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()


def _text(value: object) -> str:
    """The value of a column. Raises TypeError if it is no text, as in a damaged file."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def decide_with(cache: AnswerCache, obligations: Iterable[Obligation], decide: Decide) -> Iterator[ProofOutcome]:
    """Take the answers from the cache, and let `decide` answer the other obligations, with their questions."""
    found = deque[ProofOutcome]()
    questions: dict[int, Question] = {}

    def missing() -> Iterator[Obligation]:
        for one in obligations:
            if not one.is_trivial():
                question = one.question()
                if (answer := cache.get(question)) is not None:
                    found.append(ProofOutcome(one, answer, is_cached=True))
                    continue
                questions[id(one)] = question
            yield one

    for outcome in decide(missing(), lambda one: questions[id(one)]):
        while found:
            yield found.popleft()
        if (question := questions.pop(id(outcome.obligation), None)) is not None:
            cache.add(question, outcome.answer)
        yield outcome
    yield from found
