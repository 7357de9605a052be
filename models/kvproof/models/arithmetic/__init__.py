"""The arithmetic of blocks, proved for all integers and every block size, on the source that runs.

Functions of the implementation and words of the specification are read into terms (`kvproof.models.translation`);
where a function does more than reckon, the expressions that reckon are read out of it (`sources`). `lengths` is about
tokens, slots and blocks, `appends` about what growing takes, `admissions` about OK, LATER and NEVER, `windows` about
what a sliding window drops, `identifiers` about ids on two devices, `memory` about bytes.
"""
