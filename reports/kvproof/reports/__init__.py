"""Verdicts rendered for people and machines: JUnit, SARIF, HTML, Markdown."""
