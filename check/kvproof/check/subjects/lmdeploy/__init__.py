"""Adapter of LMDeploy's block manager and prefix cache."""
