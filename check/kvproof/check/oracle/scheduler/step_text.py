"""A scheduled step as text."""

from kvproof.check.protocol.scheduler import HostStore, Load, ScheduledStep


def pairs_text(copy: Load | HostStore) -> str:
    """The job and the (source, target) pairs of a copy to or from host memory; empty for other loads."""
    pairs = ", ".join(f"{source} -> {target}" for source, target in copy.pairs)
    return f" (copy {copy.job}: {pairs})" if copy.pairs else ""


def step_text(step: ScheduledStep) -> str:
    """A step as text."""
    parts = [f"sequence {c.seq}: {c.start} to {c.stop}" + (f", hit {c.hit}" if c.hit else "") for c in step.chunks]
    parts += [f"sequence {load.seq}: loads {load.hit} to {load.stop}{pairs_text(load)}" for load in step.loads]
    parts += [f"store{pairs_text(store)}" for store in step.stores]
    parts += [f"waits for copy {job}" for job in step.flushes]
    for name in ("swap_in", "swap_out", "copies", "ignored", "failed"):
        if getattr(step, name):
            parts.append(f"{name.replace('_', ' ')} {list(getattr(step, name))}")
    return "; ".join(parts) or "nothing"
