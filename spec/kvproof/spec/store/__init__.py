"""The specification of key-value stores of several tiers: host memory, disks and peers behind a device."""
