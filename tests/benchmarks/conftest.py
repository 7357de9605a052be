"""The benchmarks are no source root and reach no wheel; their tests find them in the tree."""

import sys
from pathlib import Path

TREE = str(Path(__file__).resolve().parents[2])
if TREE not in sys.path:
    sys.path.append(TREE)
