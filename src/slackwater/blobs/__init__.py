"""Object storage: the protocol, the one store behind it, and the names of its keys."""
