"""What Alembic runs: the migrations, on the connection and in the transaction of schema.migrate."""

from alembic import context

attributes = context.config.attributes
context.configure(connection=attributes["connection"], version_table=attributes["version_table"])
with context.begin_transaction():
    context.run_migrations()
