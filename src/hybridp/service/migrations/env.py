"""How Alembic runs the steps in `versions`: in the transaction of `hybridp.service.schema.prepare`, all or none."""

from alembic import context

__all__: list[str] = []

if hasattr(context, "config"):  # run by Alembic, not imported
    context.configure(connection=context.config.attributes["connection"])
    context.run_migrations()
