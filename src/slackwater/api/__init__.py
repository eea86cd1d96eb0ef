"""HTTP in and out, for customers and operators. No rules and no SQL here."""
