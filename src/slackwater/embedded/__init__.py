"""What a machine without anything gets: PostgreSQL from a wheel, the engine's environment, the demo model."""
