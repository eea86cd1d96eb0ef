"""The only speaker of SQL."""
