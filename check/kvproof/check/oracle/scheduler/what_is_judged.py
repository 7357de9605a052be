"""Which configurations of a scheduler are judged: those that it declares, without what is not judged together."""

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.spec.text.budgets import FCFS


def has_sizes(config: SchedulerConfig) -> bool:
    """Whether KV groups have states, or blocks of different sizes."""
    return config.has_states or len({*config.block_sizes}) > 1


def require_loads(config: SchedulerConfig, can: Capabilities) -> None:
    """Raise Unsupported if loads cannot fail, or happen within a step, as the configuration says."""
    if config.load_failures and config.load_failures not in can.load_failures:
        raise Unsupported(f"the subject does not declare what happens if a load fails: {config.load_failures}")
    if (config.load_failures or config.loads_in_step) and not config.transfers:
        raise Unsupported("only KV from elsewhere is loaded within a step, or not loaded at all")
    is_hybrid = config.leaves_entries or config.has_states or len(config.kv_groups) > 1
    if config.loads_in_step and config.load_failures and is_hybrid:
        raise Unsupported("loads within a step that fail are judged with one group of full attention")
    if config.load_failures and (config.window or config.local_chunk) and len(config.kv_groups) == 1:
        raise Unsupported("loads that fail are judged without windows and local attention, or with several KV groups")
    if config.load_failures and has_sizes(config):
        raise Unsupported("loads that fail are judged without states, and with blocks of one size")
    if config.repeated_reports and not (can.repeated_reports and config.transfers):
        raise Unsupported("the subject does not take it that a load is reported twice")
    if config.loads_in_step and not can.loads_in_step:
        raise Unsupported("the subject does not load KV within a step")


def require_sessions(config: SchedulerConfig, can: Capabilities) -> None:
    """Raise Unsupported if requests cannot go on, or this is not judged together with what else is configured."""
    if config.sessions and not can.sessions:
        raise Unsupported("the subject has no requests that go on")
    moves = config.transfers or config.connector or config.num_host_blocks
    is_plain = config.group_size == 1 and not (config.cross or config.images or can.fork or can.forks_itself)
    if config.sessions and (moves or config.async_steps or config.speculative_tokens or not is_plain):
        raise Unsupported("sessions are judged of single sequences, without transfers, drafts and asynchronous steps")
    if config.sessions and config.retention is not None:
        raise Unsupported("sessions are judged where the prefix cache keeps everything")


def require_judged(config: SchedulerConfig, can: Capabilities) -> None:
    """Raise Unsupported for a configuration that the subject does not declare, or that is not judged."""
    if config.policy != FCFS and config.policy not in can.policies:
        raise Unsupported(f"the subject does not declare the order {config.policy}")
    if config.long_prefill_threshold and not can.long_prefills:
        raise Unsupported("the subject does not bound the tokens of one prompt in a step")
    if config.partial_prefills > can.partial_prefills:
        raise Unsupported("the subject does not compute that many prompts in part in one step")
    if config.connector and config.connector not in can.connectors:
        raise Unsupported(f"the subject does not declare the connector {config.connector}")
    require_loads(config, can)
    require_sessions(config, can)
    if config.unpublished and not can.unpublished:
        raise Unsupported("the subject keeps no KV out of its prefix cache")
    if config.pauses and not can.pauses:
        raise Unsupported("the subject cannot be paused")
    if config.resets and not can.reset:
        raise Unsupported("the prefix cache of the subject cannot be reset")
    if config.max_loras and not can.max_loras:
        raise Unsupported("the subject does not bound the adapters of a step")
    if config.speculative_tokens > can.speculative_tokens:
        raise Unsupported("the subject does not verify so many drafts of one sequence")
    if config.staggered and not can.staggers:
        raise Unsupported("the subject does not leave requests out of the steps after their own")
    if config.connector and (config.transfers or config.num_host_blocks or config.local_chunk):
        raise Unsupported("a connector is judged without other transfers, swap and local attention")
    if config.connector and (config.window or len(config.kv_groups) > 1) and not can.hybrid_connectors:
        raise Unsupported("the subject has no connector with windows or with several KV groups")
    is_alone = config.group_size == 1 and not (config.cross or can.fork)
    loses_tokens = config.async_steps and can.runs_ahead
    if config.speculative_tokens and (loses_tokens or config.num_host_blocks or not is_alone):
        raise Unsupported("drafts are judged of single sequences, without swap and lost tokens")
    fails = config.loads_in_step or config.load_failures or config.repeated_reports
    if config.speculative_tokens and (config.connector or fails):
        raise Unsupported("drafts are judged without connectors, and with loads that arrive once, between steps")
    if config.speculative_tokens and config.transfers and (config.leaves_entries or len(config.kv_groups) > 1):
        raise Unsupported("drafts and transfers are judged with one group of full attention")
    if config.speculative_tokens and config.transfers and config.drafting:
        raise Unsupported("a draft model that drops the last block of a hit is judged without transfers")
    if len(config.kv_groups) > 1 and config.num_host_blocks:
        raise Unsupported("several KV groups of a scheduler are judged without swap")
    is_hybrid = len(config.kv_groups) > 1 or config.leaves_entries
    if config.transfers and is_hybrid and not can.hybrid_transfers:
        raise Unsupported("the subject has no transfers with windows or with several KV groups")
    if has_sizes(config) and (config.num_host_blocks or config.connector or config.speculative_tokens or not is_alone):
        raise Unsupported("states and blocks of different sizes are judged of single sequences, without drafts")
