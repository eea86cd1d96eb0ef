"""The stages of a batch. They meet in the database and never import one another."""
