"""Write the digests of what adapters play, from the downloaded releases that the subjects were judged with."""

import sys
from collections.abc import Iterable

from kvproof.check.subjects import replaced
from kvproof.check.subjects.loading.download import Engine, installed_engines, order_of
from kvproof.check.subjects.loading.functions import functions_in
from kvproof.check.subjects.registry import NAMED
from kvproof.check.subjects.replaced import FOLDER, Replaced


def written(engine: str, releases: Iterable[Engine]) -> str:
    """The table of an engine, with the digests of these releases, oldest first."""
    table, known = replaced.table_of(engine), list(releases)
    options = ", ".join(f'"{one}"' for one in table.options)
    return f"options = [{options}]\n" + "".join(f"\n{_section(one, known)}" for one in table.replaced)


def _section(one: Replaced, releases: list[Engine]) -> str:
    spans = [NAMED[subject].releases or ("", "") for subject in one.subjects]
    oldest = min((oldest for oldest, _ in spans), key=order_of)
    newest = max((newest for _, newest in spans), key=order_of)
    digests = dict[str, str]()
    for release in releases:
        if order_of(oldest) <= order_of(release.version) <= order_of(newest):
            found = functions_in(release.folder / one.file).get(one.name)
            digest = found.digest if found else ""
            if digest != (next(reversed(digests.values())) if digests else ""):
                digests[release.version] = digest
    rows = "".join(f'"{version}" = "{digest}"\n' for version, digest in digests.items())
    subjects = ", ".join(f'"{subject}"' for subject in one.subjects)
    name = f'"{one.file}"."{one.name}"'
    return f"[{name}]\nsubjects = [{subjects}]\n\n[{name}.digests]\n{rows}"


def main(engines: list[str]) -> None:
    """Write the tables of these engines."""
    for engine in engines:
        releases = [one for one in installed_engines() if one.name == engine and not one.folder.is_symlink()]
        text = written(engine, releases)
        (FOLDER / f"{engine}.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
