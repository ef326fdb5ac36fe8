"""Columns and names that every table shares."""

from enum import StrEnum

from sqlalchemy import BigInteger, Column, DateTime, Enum, ForeignKey, Identity, MetaData, func

SCHEMA = "classgan"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    },
)


def enum(kind: type[StrEnum], name: str) -> Enum:
    return Enum(kind, name=name, schema=SCHEMA, values_callable=lambda members: [m.value for m in members])


def identity() -> Column:
    return Column("id", BigInteger, Identity(always=True), primary_key=True)


def now(name: str) -> Column:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=func.now())


def of_training() -> Column:
    return Column("training_id", BigInteger, ForeignKey("classgan.trainings.id", ondelete="CASCADE"), nullable=False)
