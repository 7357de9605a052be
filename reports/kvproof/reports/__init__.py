"""Results rendered for people and machines: terminal, JUnit, SARIF, HTML, Markdown."""
