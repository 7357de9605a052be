"""A corpus of one valid record, in a folder with the files that it names."""

from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[4] / "examples"
TRACE, SCRIPT = "f8-a-block-freed-twice-in-one-call", "vllm_salt_equals_an_adapters_name.py"
RECORD = f'''engine = "vllm"
alias = "F8"
class = "reference-counts"
mechanism = "A block that one call frees twice gets a count below zero."
harm = "Two requests get one block."
place = "vllm/v1/core/block_pool.py: BlockPool.free_blocks"
bad = ["0.22.0", "0.23.0"]
good = ["0.24.0"]
links = ["vllm-project/vllm#42571"]
state = "repaired"
found_by = "hunt"
property = "lists-agree"
subject = "vllm-v1-pool"
trace = "{TRACE}"
script = "{SCRIPT}"
story = "The call is `free_blocks`."
'''
Corpus = Callable[..., Path]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Write the record, with texts replaced by others, to a folder of its own. Returns the folder."""

    def write(*changes: tuple[str, str], name: str = "vllm-freed-twice") -> Path:
        for folder, file in (("traces", f"{TRACE}.json"), ("reproductions", SCRIPT)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / file).write_bytes((EXAMPLES / folder / file).read_bytes())
        text = RECORD
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "corpus").mkdir(exist_ok=True)
        (tmp_path / "corpus" / f"{name}.toml").write_text(text)
        return tmp_path

    return write
