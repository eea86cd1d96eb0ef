"""Slackwater: batch inference for LLMs with exactly one result for every request."""
