"""The page of a campaign."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.reports.campaign_page import campaign_page
from kvproof.reports.result import Result
from kvproof.spec.verdict import Exit


def search(subject: str, **others: Any) -> Any:
    counts = {"seed": 1, "effort": "quick", "planned": 50_000, "operations": 12_345, "runs": 40, "rules": 9}
    return SimpleNamespace(subject=subject, fixed={}, reason="", **counts, **others)


def test_the_page_of_a_campaign_has_each_finding_with_its_steps_and_each_search(
    refuted: Result, tmp_path: Path
) -> None:
    found = refuted.checks[2]
    excused = replace(found, excused="fixed in <0.3>", trace="../outside.json")

    left_out = search("nano-vllm")
    left_out.reason = "the engine is not there"
    searches = [search("vllm-v0==0.2.7"), left_out]
    findings = [(searches[0], excused), (searches[0], found)]
    page = campaign_page(searches, findings, ["interrupted"], Exit.REFUTED, tmp_path)

    assert "<h1>2 searches, 24,690 operations, 1 finding</h1>" in page
    assert page.index("fork(&#34;p&#34;, &#34;c&#34;)") < page.index("No failure: fixed in &lt;0.3&gt;")
    assert "is not in the folder" in page
    assert "not searched: the engine is not there" in page
    assert "<p>interrupted</p>" in page


@pytest.mark.parametrize(("code", "badge"), [(Exit.OK, "not refuted"), (Exit.INCONCLUSIVE, "inconclusive")])
def test_a_campaign_without_findings_says_how_it_ended(code: Exit, badge: str, tmp_path: Path) -> None:
    page = campaign_page([search("kvproof")], [], [], code, tmp_path)
    assert f'<span class="badge">{badge}</span>' in page
    assert "Nothing is refuted." in page
