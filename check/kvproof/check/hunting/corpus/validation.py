"""Whether the records agree with the files that they name, with kvproof, and with themselves.

A record that says something wrong is worse than none: its id, class, subject and property must exist, its files must be
there, the trace must show the property in a release that the record calls bad, and each trace and each script must
belong to a record.
"""

from collections.abc import Iterator
from pathlib import Path

from kvproof.check.counterexample.store import load
from kvproof.check.counterexample.trace_schema import CounterexampleError
from kvproof.check.hunting.corpus.record import CLASSES, ID, LINK, FaultRecord
from kvproof.check.oracle.coverage import PROPERTIES
from kvproof.check.subjects.loading.download import order_of
from kvproof.check.subjects.registry import NAMED

TRACES, SCRIPTS = "traces", "reproductions"
HARNESS = "on_"  # how the files begin that several scripts share


def trace_of(fault: FaultRecord, examples: Path) -> Path | None:
    """The file of the saved run, if there is one."""
    return examples / TRACES / f"{fault.trace}.json" if fault.trace else None


def script_of(fault: FaultRecord, examples: Path) -> Path | None:
    """The file of the script, if there is one."""
    return examples / SCRIPTS / fault.script if fault.script else None


def problems(faults: list[FaultRecord], examples: Path) -> list[str]:
    """What is wrong with the records, a sentence each, with the id of the record."""
    found = [f"{one.id}: {text}" for one in faults for text in _problems(one, examples)]
    aliases = [one.alias for one in faults if one.alias]
    found += [f"{name}: several records have this alias" for name in sorted(set(aliases)) if aliases.count(name) > 1]
    named = {one.script for one in faults}
    scripts = sorted(path.name for path in (examples / SCRIPTS).glob("*.py") if not path.name.startswith(HARNESS))
    found += [f"{SCRIPTS}/{name}: no record names this script" for name in scripts if name not in named]
    named_runs = "\n".join(one.story for one in faults) + "\n".join(one.trace for one in faults)
    traces = sorted(path.stem for path in (examples / TRACES).glob("*.json"))
    found += [f"{TRACES}/{name}.json: no record names this run" for name in traces if name not in named_runs]
    return found


def _problems(fault: FaultRecord, examples: Path) -> Iterator[str]:
    if ID.fullmatch(fault.id) is None:
        yield "an id has small letters, digits and hyphens"
    if fault.fault_class not in CLASSES:
        yield f"no class is named {fault.fault_class}; the classes are {', '.join(CLASSES)}"
    for name, sentence in (("mechanism", fault.mechanism), ("harm", fault.harm)):
        if not sentence.endswith("."):
            yield f"{name} is a sentence, and ends with a full stop"
    yield from (f"{link!r} is no owner/name#number" for link in fault.links if LINK.fullmatch(link) is None)
    yield from _about_releases(fault)
    yield from _about_kvproof(fault)
    yield from _about_files(fault, examples)


def _about_releases(fault: FaultRecord) -> Iterator[str]:
    if both := sorted(set(fault.bad) & set(fault.good)):
        yield f"{', '.join(both)} cannot be bad and good"
    if fault.has_releases:
        for name, releases in (("bad", fault.bad), ("good", fault.good)):
            if releases != sorted(set(releases), key=order_of):
                yield f"{name} is in the order of the releases, each once"
    if fault.state == "repaired" and not fault.gone_in:
        yield "it is repaired, so name a newer release without it in good"
    if (fault.state == "unreported") != (fault.report is not None):
        yield "a fault that is unreported, and no other, has a [report] that can be sent"
    if fault.state == "reported" and not fault.links:
        yield "it is reported, so name the issue in links"


def _about_kvproof(fault: FaultRecord) -> Iterator[str]:
    for name, subject in (("subject", fault.subject), ("loaded_by", fault.loaded_by)):
        if subject and subject not in NAMED:
            yield f"{name}: no subject is named {subject}"
    if fault.property_id and fault.property_id not in PROPERTIES:
        yield f"no property is named {fault.property_id}"
    if fault.trace and not (fault.subject and fault.property_id):
        yield "a saved run has a subject and a property"
    if fault.missed is None and not (fault.subject and fault.property_id):
        yield "no hunt can find it without a subject and a property, so say why in [missed]"
    if fault.missed is not None and (fault.missed.cause == "no subject") != (not fault.subject):
        yield "[missed] has the cause 'no subject' where no subject drives it, and only there"


def _about_files(fault: FaultRecord, examples: Path) -> Iterator[str]:
    script, path = script_of(fault, examples), trace_of(fault, examples)
    if script is not None and not script.is_file():
        yield f"there is no {SCRIPTS}/{fault.script}"
    if script is not None and fault.has_releases and not (fault.loaded_by or fault.subject):
        yield "loaded_by names the subject that imports a release for the script"
    if path is None:
        return
    try:
        trace = load(path)
    except CounterexampleError as error:
        yield str(error)
        return
    subject, _, release = trace.subject.partition("==")
    if (subject, trace.property) != (fault.subject, fault.property_id):
        yield f"{path.name} is a run of {subject} that breaks {trace.property}"
    if fault.has_releases and release not in fault.bad:
        yield f"{path.name} shows it in {release}, which is not in bad"
