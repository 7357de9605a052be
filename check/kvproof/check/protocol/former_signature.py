"""How kvproof called a finding before signatures were made of claims, so that what it wrote then still names it.

Baselines, lists of known findings and histories may hold such signatures. They were made of the text of a finding: its
words without numbers, tables and records. This is their only use.
"""

import re

from kvproof.check.protocol.finding import Finding, words_of

DICT = re.compile(r"{[^{}]*}")  # tables in the text of a finding, or a configuration
RECORD = re.compile(r"\b[A-Z]\w*\((?:\w+=[^()]*)?\)(?:, )?")  # a tuple with named fields, such as the part of a step


def former_signature(finding: Finding, operation: str) -> str:
    """The signature that the finding would have had, if a run ended in it with this operation."""
    text = RECORD.sub("", DICT.sub("", finding.text))
    words = words_of(text.partition(": ")[2] or text)
    if not words and not finding.cause:
        words = words_of(text)
    return f"{finding.cause or operation}: {words}{finding.after_question}"
