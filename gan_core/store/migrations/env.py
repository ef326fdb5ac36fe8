"""Run by Alembic. `gan_core.store.migrate` hands the connection over."""

from alembic import context

from gan_core.store.schema import SCHEMA, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table_schema=SCHEMA,
    include_schemas=True,
    include_name=lambda name, kind, parents: kind != "schema" or name == SCHEMA,
)
with context.begin_transaction():
    context.run_migrations()
