"""Real engines: bringing in the sources of a release, and importing the one module that is judged."""
