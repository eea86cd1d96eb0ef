"""Engines: the protocol, and the servers and processes that satisfy it."""
