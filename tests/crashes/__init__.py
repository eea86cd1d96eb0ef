"""Crash points: every write of the service by its stage, and what comes of a process that is killed at one."""
