"""The composition root: roles, administration and the people's commands; the real clock and chance."""
