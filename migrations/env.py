"""Alembic's entry: run the migrations on the connection or URL that the caller put into the config."""

from alembic import context
from sqlalchemy import Connection, create_engine

from slackwater.db.session import driver_url
from slackwater.db.tables import metadata


def _run(connection: Connection) -> None:
    """Apply the migrations in one transaction."""
    context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=False)
    with context.begin_transaction():
        context.run_migrations()


def main() -> None:
    """Migrate the database named by ``sqlalchemy.url``, or print the SQL in offline mode."""
    url = driver_url(context.config.get_main_option("sqlalchemy.url") or "")
    if context.is_offline_mode():
        context.configure(url=url, target_metadata=metadata, literal_binds=True)
        with context.begin_transaction():
            context.run_migrations()
        return
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            _run(connection)
    finally:
        engine.dispose()


main()
