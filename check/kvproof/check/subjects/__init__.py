"""The adapters through which subjects are driven; one folder per engine."""
