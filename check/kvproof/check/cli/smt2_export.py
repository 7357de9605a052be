"""Every obligation as a file of SMT-LIB: for another solver, or for whoever wants to read what was asked."""

import hashlib
import re
from pathlib import Path

from kvproof.check.runs.store import StoreError, explained
from kvproof.models.proofs.obligation import Obligation
from kvproof.spec.verdict import Exit

NAME_LENGTH = 60


def require_folder(folder: Path) -> None:
    """Raises StoreError if nothing can be written there."""
    with explained(folder):
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file; --smt2 takes a folder", Exit.USAGE)
        folder.mkdir(parents=True, exist_ok=True)


def write_question(obligation: Obligation, folder: Path) -> Path:
    """Write what is asked of a solver below the folder, as suite/subject/claim.smt2. Raises StoreError."""
    digest = hashlib.sha256(obligation.id.encode()).hexdigest()[:8]  # a claim may be too long for the name of a file
    file = folder / _plain(obligation.suite) / _plain(obligation.subject) / f"{_plain(obligation.claim)}-{digest}.smt2"
    name = " ".join(obligation.id.split())
    head = f"; {name}\n; property: {obligation.property}\n(set-logic ALL)\n(set-info :status unsat)\n"
    with explained(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(head + obligation.smt2(), encoding="utf-8")
    return file


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text)[:NAME_LENGTH].strip("-")
