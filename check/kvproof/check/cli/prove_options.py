"""What a proof run does besides deciding: a second solver, files of SMT-LIB, cores, a baseline of efforts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kvproof.check.cli.prove_baseline import compared, read_baseline, write_baseline
from kvproof.check.cli.prove_needs import need_lines
from kvproof.check.cli.prove_second_solver import opinion_lines, require_second_solver, second_opinions
from kvproof.check.cli.smt2_export import require_folder, write_question
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.terminal import Output
from kvproof.models.solvers.solver_effort import Efforts
from kvproof.models.solvers.solving import Decided, Settings
from kvproof.reports.result import Result
from kvproof.spec.verdict import Exit


@dataclass
class ProofOptions:
    """What was asked for besides, and what came of it. smt2: the folder for the files."""

    second_solver: bool = False
    smt2: Path | None = None
    baseline: Path | None = None
    save_baseline: Path | None = None
    worse: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    answers: list[Decided] = field(default_factory=list)
    before: Efforts | None = None

    def prepare(self, settings: Settings, is_whole: bool) -> None:
        """Whatever can be said before the run. Raises UsageError, StoreError."""
        if (self.baseline or self.save_baseline) and settings.wants_core:
            raise UsageError("--cores takes other efforts than a run without; ask for it without a baseline")
        if self.save_baseline and not is_whole:
            raise UsageError("a baseline is of everything; leave out --only and --text, or --save-baseline")
        if self.second_solver:
            require_second_solver()
        if self.smt2 is not None:
            require_folder(self.smt2)
        self.before = None if self.baseline is None else read_baseline(self.baseline, settings.seed)

    def follow(
        self, decided: list[Decided], result: Result, settings: Settings, num_processes: int, is_whole: bool, to: Output
    ) -> None:
        """All of it, once everything is decided. Raises UsageError, StoreError."""
        if self.smt2 is not None:
            files = [write_question(one.obligation, self.smt2) for one in decided if not one.is_kept]
            result.messages.append(f"{len(files):,} questions written below {self.smt2}")
        if self.second_solver:
            for one, check in second_opinions(decided, settings, num_processes, to):
                self.answers.append(one)
                result.checks.append(check)
        if self.before is not None:
            self.worse, self.changed = compared(self.before, decided, is_whole)
            result.messages += [f"harder than the baseline: {one}" for one in self.worse]
            result.messages += [f"not as in the baseline: {one}" for one in self.changed]
        if self.save_baseline is not None:
            write_baseline(self.save_baseline, decided, settings.seed)

    def lines(self, decided: list[Decided], result: Result) -> Iterator[tuple[str, str]]:
        """What is said of it at the end."""
        yield from need_lines(decided)
        yield from opinion_lines(result.checks, self.answers)
        if self.before is not None and not self.worse:
            yield f"no obligation is harder than in {self.baseline}", ""

    def code(self, code: Exit) -> Exit:
        """The exit code of the run."""
        return Exit.WORSE_THAN_BASELINE if code is Exit.OK and self.worse else code
