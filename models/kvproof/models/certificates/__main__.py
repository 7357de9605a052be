"""Check a folder of certificates: `python -m kvproof.models.certificates DIR`, or `make check-certificates`."""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kvproof.models.certificates.checking import check_index, found_ethos
from kvproof.models.certificates.folder import CertificateError, read_index
from kvproof.models.obligation import Obligation
from kvproof.models.suites import SUITES, obligations_of
from kvproof.spec.verdict import Exit, Verdict

JOBS_MAX = 256
NAMED_MAX = 20  # rejected certificates that are named in the output, and so many that are missing


def asked_obligations() -> Iterator[Obligation]:
    """Every obligation for which a solver is asked."""
    for suite in SUITES:
        yield from (one for one in obligations_of(suite) if not one.is_trivial())


def main(arguments: list[str] | None = None) -> Exit:
    """Check every certificate, print what is wrong, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kvproof.models.certificates", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of kvproof prove --certificates DIR")
    parser.add_argument("--ethos", metavar="FILE", help="the checker (default: $ETHOS, else ethos on the PATH)")
    parser.add_argument("--signature", type=Path, metavar="FILE", help="Cpc.eo of cvc5's sources ($CPC_SIGNATURE)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="certificates that are checked at once")
    options = parser.parse_args(arguments)
    if not 1 <= options.jobs <= JOBS_MAX:
        parser.error(f"--jobs must be from 1 to {JOBS_MAX}")
    began = time.monotonic()
    try:
        index = read_index(options.folder)
        ethos = found_ethos(options.ethos, options.signature, index.solver)
        ethos.require_strict()
    except CertificateError as error:
        print(f"check-certificates: {error}", file=sys.stderr)
        return Exit.USAGE
    verdicts: Counter[Verdict] = Counter()
    for one in check_index(index, options.folder, ethos, asked_obligations(), options.jobs):
        verdicts[one.verdict] += 1
        if one.verdict is not Verdict.PROVED and verdicts[one.verdict] <= NAMED_MAX:
            print(f"{'rejected' if one.verdict is Verdict.REFUTED else 'not checked'}: {one.id}: {one.reason}")
    print(
        f"{verdicts[Verdict.PROVED]:,} of {verdicts.total():,} certificates are right, "
        f"{verdicts[Verdict.REFUTED]:,} rejected, {verdicts[Verdict.UNKNOWN]:,} not checked; "
        f"proofs by {index.solver}, checked by {ethos.program} in {time.monotonic() - began:.0f} s"
    )
    return exit_code(verdicts)


def exit_code(verdicts: Counter[Verdict]) -> Exit:
    """The exit code: refuted if a certificate is rejected, inconclusive if one is missing."""
    if verdicts[Verdict.REFUTED]:
        return Exit.REFUTED
    if verdicts[Verdict.UNKNOWN]:
        return Exit.INCONCLUSIVE
    return Exit.OK if verdicts[Verdict.PROVED] else Exit.NOTHING_CHECKED


def run() -> Exit:
    """The exit code of `main`, also if its output cannot be written."""
    try:
        code = main()
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"check-certificates: standard output cannot be written ({error.strerror})", file=sys.stderr)
        return Exit.INTERNAL
    return code


if __name__ == "__main__":
    sys.exit(run())
