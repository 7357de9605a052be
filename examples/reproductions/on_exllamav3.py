"""ExLlamaV3's page table and its jobs, without a model: what the scripts for ExLlamaV3 share."""

from typing import Any

from on_any_engine import StandIn, fault_if, nothing, same

# isort: split
import torch
from exllamav3.generator.job import Job
from exllamav3.generator.pagetable import PAGE_SIZE, PageTable

__all__ = ["PAGE_SIZE", "Generator"]


class Generator:
    """A generator: its pages, and which page was copied to which, with the number of tokens."""

    def __init__(self, num_pages: int) -> None:
        self.copies: list[tuple[int, int, int]] = []
        cache = StandIn(max_num_tokens=num_pages * PAGE_SIZE, copy_page=self._copy_page)
        self._generator = StandIn(
            cache=cache,
            model=StandIn(caps={}, prefill=nothing),
            max_total_tokens=num_pages * PAGE_SIZE,
            max_chunk_size=2048,
            max_batch_size=4,
            **same(0, "max_draft_tokens num_draft_tokens hybrid_draft_tokens padded_vocab_size ngram_match_min"),
            **same(False, "mtp_draft dflash_draft"),
            **same(None, "ngram_corpus draft_model recurrent_cache"),
        )
        self.pages = self._generator.pagetable = PageTable(self._generator, cache)

    def _copy_page(self, cache: Any, source: int, target: int, num_tokens: int) -> None:
        self.copies.append((source, target, num_tokens))

    def claim(self, tokens: list[int], num_generated: int = 8) -> Job:
        """A job that has its pages; its prompt is not computed yet."""
        job = Job(torch.tensor([tokens]), max_new_tokens=num_generated, sampler=StandIn())
        job.prepare_for_queue(self._generator, 0)
        job.allocate_pages()
        return job

    def start(self, tokens: list[int], num_generated: int = 8) -> Job:
        """A job that has its pages and whose prompt is computed."""
        job = self.claim(tokens, num_generated)
        compute(job)
        return job

    def fault_if_copied(self) -> None:
        """End the script if KV was copied."""
        for source, target, num_tokens in self.copies:
            print(f"page {target}, the first of the prompt, gets {num_tokens} tokens of KV from page {source}")
        fault_if(self.copies, "this KV was computed behind another page")
        print("nothing was copied")


def compute(job: Job) -> None:
    """Compute the prompt of a job, but for its last token."""
    while not job.is_prefill_done():
        job.prefill([])


def generate(job: Job, token: int) -> Any:
    """Compute the last token of a job, and sample the next one. Returns its sequence."""
    job.get_input_ids_list(add_to_cache=True)
    (sequence,) = job.sequences
    sequence.sequence_ids.append(torch.tensor([[token]]))
    sequence.kv_position += 1
    return sequence
