"""The rules, pure: no input or output, no clock, no chance; the standard library and msgspec only."""
