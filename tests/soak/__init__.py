"""The soak: minutes of work by several tenants while everything dies at random, then an audit of every batch."""
