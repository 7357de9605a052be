"""The glossary explains each verdict, the page of red runs each property; SARIF and the summary quote the latter."""

import json
import re
from pathlib import Path

from kvproof.reports.markdown import markdown
from kvproof.reports.result import Check, Result, Run
from kvproof.reports.sarif import sarif
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.verdict import Verdict

DOCS = Path(__file__).parents[2] / "docs"


def broken(name: str) -> Result:
    run = Run("0.1.0", "hunt", "s", 7, is_complete=True)
    return Result(run, [Check(f"walker/{name}", "walker", name, Verdict.REFUTED, text="block 3")])


def test_the_pages_explain_every_verdict_and_show_the_same_sentences_of_properties() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| (.*?) \| (.*?) \|", (DOCS / "red.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert rows == [(name, *meaning) for name, meaning in MEANINGS.items()]
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    verdicts = re.findall(r"^\| \*+([\w ]+?)\*+ \| \w.*? \|$", text, re.MULTILINE)
    assert verdicts == [verdict.value for verdict in Verdict]


def test_the_help_of_a_sarif_rule_says_what_a_user_of_the_server_sees(tmp_path: Path) -> None:
    rule = json.loads(sarif(broken("sharing-equal"), tmp_path))["runs"][0]["tool"]["driver"]["rules"][0]
    assert "Text leaks between users, tenants or adapters." in rule["help"]["text"]


def test_the_summary_explains_each_refuted_property_once(tmp_path: Path) -> None:
    result = broken("sharing-equal")
    assert markdown(result, tmp_path).count("Text leaks between users, tenants or adapters.") == 1
    result.checks[0].verdict = Verdict.NOT_REFUTED
    assert "Text leaks" not in markdown(result, tmp_path)
