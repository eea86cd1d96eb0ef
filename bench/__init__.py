"""Measured comparisons: on loopback only, bounded in count and time, alternating and repeated. Not shipped."""
