"""The document of a score is read strictly."""

from pathlib import Path

import pytest

from kvproof.check.hunting.corpus.score_document import read_score
from kvproof.reports.document import DocumentError

GOOD = '{"tool": "kvproof", "seeds": [1], "effort": "normal", "records": [], "schema_version": 1}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no score"),
        ("{}", "missing required field"),
        (GOOD.replace('"effort"', '"efort"'), "unknown field"),
        (GOOD.replace('"schema_version": 1', '"schema_version": 2'), "schema version 2"),
    ],
)
def test_what_is_no_score_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "score.json").write_text(text)
    with pytest.raises(DocumentError, match=message):
        read_score(tmp_path / "score.json")


def test_a_score_is_read(tmp_path: Path) -> None:
    (tmp_path / "score.json").write_text(GOOD)
    assert read_score(tmp_path / "score.json").tool == "kvproof"
