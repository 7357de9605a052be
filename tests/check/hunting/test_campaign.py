"""A campaign that is killed and resumed ends with the same table as one that is not."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL

from kvproof.check.hosts.workers import UnitLost
from kvproof.check.hunting import campaign as head
from kvproof.check.hunting import unit as unit_module
from kvproof.check.hunting.campaign import Campaign, CampaignResult, Watch
from kvproof.check.hunting.plan import Plan, PlannedSearch
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hunting.unit import Judged, shorten_unit
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import StoreError
from kvproof.check.subjects.registry import find
from kvproof.spec.verdict import Exit

FAULTY = f"""{FORGETFUL}
class Fussy(BuiltIn):
    def preempt(self, group):
        raise RuntimeError("no preemption here")
"""


class Killed(BaseException):
    """The head was killed."""


class Here:
    """Workers in this process. num_left: units until the head is killed."""

    name = "here"

    def __init__(self, num_left: int = 10**9) -> None:
        self.num_left = num_left

    def results(self, do: Callable[[Any], Any], units: Iterable[Any], *_: Any, **__: Any) -> Generator[Any, None, None]:
        for unit in units:
            if not self.num_left:
                raise Killed
            self.num_left -= 1
            yield do(unit)

    def close(self) -> None:
        """Nothing was started."""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan of four short searches of two faulty subjects, which run in this process."""
    (tmp_path / "faulty_campaign.py").write_text(FAULTY)
    monkeypatch.setattr(unit_module, "SMALL", 60)
    monkeypatch.setattr(head, "Judged", lambda name, _: Judged(name, isolation=False))
    monkeypatch.setattr(head, "factory_of", lambda name: (find(name), None))
    names = [f"{tmp_path / 'faulty_campaign.py'}:{name}" for name in ("Forgetful", "Fussy")]
    return Plan(
        tmp_path / "out", [PlannedSearch(name, {}, seed, "240", 240) for name in names for seed in (1, 2)], None, None
    )


def run(plan: Plan, workers: Here, news: list[str] | None = None) -> CampaignResult:
    store = ResultStore.of_campaign(plan.folder)
    watch = Watch(lambda *_: None, lambda *_: None, (news if news is not None else []).append)
    campaign = Campaign(plan, store, workers, watch)
    try:
        campaign.run()
    finally:
        store.close()
    return campaign.result


def test_a_campaign_that_is_killed_twice_ends_with_the_table_of_one_that_is_not(plan: Plan) -> None:
    news: list[str] = []
    here = Here()
    expected = run(replace(plan, folder=plan.folder / "other"), here, news)
    assert 10**9 - here.num_left == 16 + 4 + 4  # units of walks, the rest of four after a finding, and these to shorten
    assert [(one.property, one.signature) for _, one in expected.findings] == [
        ("refcount-exact", "fork: refcount of block: the specification says the subject, too small"),
        ("total-calls", "preempt RuntimeError: raised in Fussy.preempt of faulty_campaign.py"),
    ]
    assert [one.operations for one in expected.searches] == [240] * 4
    assert expected.is_complete
    assert [line.partition(" ")[0] for line in news].count("refuted:") == 2
    for num_units in (3, 6):
        with pytest.raises(Killed):
            run(plan, Here(num_units))
    assert run(plan, Here()) == expected
    assert run(plan, Here(0)) == expected  # everything is in the store
    assert {path.name for path in (plan.folder / "crashes").iterdir() if path.suffix == ".json"} == {
        Path(one.trace).name for _, one in expected.findings if one.trace
    }


class Lossy(Here):
    """Workers that a subject ends, whatever they do with it."""

    def results(self, do: Callable[[Any], Any], units: Iterable[Any], *_: Any, **__: Any) -> Generator[Any, None, None]:
        for unit in units:
            is_lost = unit.subject.name.endswith(":Forgetful")
            yield UnitLost("was ended", is_next=True) if is_lost else do(unit)


def test_a_subject_that_ends_its_workers_costs_its_own_searches(plan: Plan) -> None:
    expected = run(replace(plan, folder=plan.folder / "other"), Here())
    lossy = run(plan, Lossy())
    reason = "3 workers ended while they did the same unit, the last was ended"
    assert [one.reason for one in lossy.searches] == [reason, reason, "", ""]
    assert lossy.searches[2:] == expected.searches[2:]
    assert lossy.is_complete
    assert not any(one.subject.endswith(":Forgetful") for one, _ in lossy.findings)
    assert run(plan, Lossy()) == lossy  # after a restart, too
    assert run(plan, Here()) == expected  # nothing of it was kept


def test_a_finding_whose_shortest_run_was_lost_is_kept_as_it_was_found(plan: Plan) -> None:
    class LosesTheShortest(Here):
        def results(
            self, do: Callable[[Any], Any], units: Iterable[Any], *_: Any, **__: Any
        ) -> Generator[Any, None, None]:
            for unit in units:
                yield UnitLost("was ended", is_next=True) if do is shorten_unit else do(unit)

    done = run(plan, LosesTheShortest())
    assert [one.property for _, one in done.findings] == ["refcount-exact", "total-calls"]


def test_a_limit_of_units_ends_a_campaign_and_the_next_start_goes_on(plan: Plan) -> None:
    short = run(replace(plan, units_max=2), Here())
    assert [one.operations for one in short.searches] == [60, 60, 0, 0]
    assert short.messages == ["ended by the limit of 2 units; start it again to go on"]
    assert not short.is_complete


def test_one_folder_has_one_head_and_no_database_of_another_program(plan: Plan) -> None:
    store = ResultStore.of_campaign(plan.folder)
    with pytest.raises(
        UsageError,
        match=r"^another run of kvproof writes to .*; wait until it has ended, or name another folder with --out$",
    ):
        ResultStore.of_campaign(plan.folder)
    store.add("a", "worker", 1.0, [1])
    store.add("a", "worker", 1.0, [2])
    assert (store.find("a"), store.find("b")) == ([1], None)
    store._database.execute("PRAGMA application_id = 5")
    store.close()
    with pytest.raises(UsageError, match="is a database of another program"):
        ResultStore.of_campaign(plan.folder)


@pytest.mark.parametrize("name", ["campaign.json", "index.html"])
def test_a_campaign_writes_over_no_file_that_is_not_its_own(plan: Plan, name: str) -> None:
    plan.folder.mkdir()
    (plan.folder / name).write_text("mine")
    with pytest.raises(UsageError, match=rf"{name} was not written by a campaign of kvproof; name another folder"):
        ResultStore.of_campaign(plan.folder)
    assert [path.name for path in plan.folder.iterdir()] == [name]
    (plan.folder / name).unlink()
    ResultStore.of_campaign(plan.folder).close()
    (plan.folder / name).touch()
    ResultStore.of_campaign(plan.folder).close()  # it resumes


def test_a_damaged_name_in_the_database_is_one_message(plan: Plan) -> None:
    store = ResultStore.of_campaign(plan.folder)
    store.close()
    store.file.write_bytes(store.file.read_bytes().replace(b"sqlite_autoindex", b"\xbfqlite_autoindex"))
    with pytest.raises(StoreError, match="cannot be used"):
        ResultStore.of_campaign(plan.folder)


RIGHT = """
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.subjects.builtin.manager import BuiltIn


class NoCache(BuiltIn):
    def open(self, config):
        if config.caching:
            raise Unsupported("no cache today")
        super().open(config)


class SmallBlocks(BuiltIn):
    def open(self, config):
        if config.block_size > 2:
            raise Unsupported("large blocks")
        super().open(config)


class NoConfiguration(BuiltIn):
    def open(self, config):
        raise Unsupported("not today")
"""


def test_a_campaign_that_never_reached_what_a_subject_declares_is_inconclusive(plan: Plan, tmp_path: Path) -> None:
    """So is one in which a subject accepts no configuration: nothing was checked of it."""
    (tmp_path / "right_campaign.py").write_text(RIGHT)
    name, other = (f"{tmp_path / 'right_campaign.py'}:{one}" for one in ("NoCache", "NoConfiguration"))

    done = run(replace(plan, searches=[PlannedSearch(name, {}, 1, "4000", 4000)]), Here())
    refused, message = done.messages
    assert refused.startswith(f"{name}: the subject refused ")
    assert "configurations: no cache today (" in refused
    assert message.startswith(f"inconclusive: the searches of {name} never reached: ")
    assert "hit on an evictable block" in message
    assert (done.is_complete, done.exit_code()) == (True, Exit.INCONCLUSIVE)
    assert "unreached" not in head.as_data(done)

    fixed = replace(plan, searches=[PlannedSearch(name, {"caching": False}, seed, "4000", 4000) for seed in (1, 2)])
    done = run(fixed, Here())
    assert (done.messages, done.exit_code()) == ([], Exit.OK)

    small = f"{tmp_path / 'right_campaign.py'}:SmallBlocks"
    done = run(replace(plan, searches=[PlannedSearch(small, {"caching": False}, 1, "4000", 4000)]), Here())
    assert "blocks of three or four slots" in done.messages[-1]
    assert done.exit_code() == Exit.INCONCLUSIVE

    both = replace(plan, searches=[*fixed.searches, PlannedSearch(other, {}, 1, "60", 60)])
    done = run(both, Here())
    assert [bool(row.reason) for row in done.searches] == [False, False, True]
    assert done.searches[2].reason.endswith("the most frequent reason: not today")
    assert done.exit_code() == Exit.INCONCLUSIVE
