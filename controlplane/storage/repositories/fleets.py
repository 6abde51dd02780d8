"""Fleets, and the generation of their routing config."""

from datetime import datetime

from sqlalchemy import select, update

from controlplane.domain.fleets import Fleet
from controlplane.storage.database import ReadSession, WriteSession
from controlplane.storage.models.fleets import FleetRow, RoutingGenerationRow
from eldr_runtime.model_shape import ModelShape


def find_fleet(session: ReadSession, name: str) -> FleetRow | None:
    """Find a fleet by its name."""
    return session.get(FleetRow, name)


def lock_fleet(session: WriteSession, name: str) -> FleetRow | None:
    """Find a fleet and keep other changes of it waiting until this transaction ends."""
    return session.get(FleetRow, name, with_for_update=True, populate_existing=True)


def list_fleets(session: ReadSession, *, after: str | None, limit: int) -> list[Fleet]:
    """List fleets by name."""
    statement = select(FleetRow).order_by(FleetRow.name).limit(limit)
    if after is not None:
        statement = statement.where(FleetRow.name > after)
    return [to_fleet(row) for row in session.scalars(statement)]


def all_fleet_names(session: ReadSession) -> list[str]:
    """Name every fleet, for jobs that look at each."""
    return list(session.scalars(select(FleetRow.name).order_by(FleetRow.name)))


def add_fleet(session: WriteSession, row: FleetRow, now: datetime) -> None:
    """Add a fleet with its first generation."""
    session.add(row)
    session.flush()
    session.add(RoutingGenerationRow(fleet=row.name, generation=row.generation, at=now, cause="fleet made"))
    session.flush()


def next_generation(session: WriteSession, fleet: str, *, cause: str, now: datetime) -> int:
    """Raise the fleet's generation by one; of two at once the second waits, so none is given twice."""
    statement = (
        update(FleetRow)
        .where(FleetRow.name == fleet)
        .values(generation=FleetRow.generation + 1)
        .returning(FleetRow.generation)
        .execution_options(synchronize_session="fetch")
    )
    generation = session.execute(statement).scalar_one()
    session.add(RoutingGenerationRow(fleet=fleet, generation=generation, at=now, cause=cause[:256]))
    session.flush()
    return generation


def generation_at(session: ReadSession, fleet: str, at: datetime) -> int | None:
    """Find the generation of a fleet's routing config at a time; None before the fleet was made."""
    statement = (
        select(RoutingGenerationRow.generation)
        .where(RoutingGenerationRow.fleet == fleet, RoutingGenerationRow.at <= at)
        .order_by(RoutingGenerationRow.generation.desc())
        .limit(1)
    )
    return session.scalars(statement).first()


def to_fleet(row: FleetRow) -> Fleet:
    """Value of a row."""
    return Fleet(
        name=row.name,
        shape=ModelShape(model=row.model, n_layers=row.n_layers, n_experts=row.n_experts, top_k=row.top_k),
        gpu=row.gpu,
        latency_preset=row.latency_preset,
        kv_block_size_tokens=row.kv_block_size_tokens,
        decode_profile_share=row.decode_profile_share,
        signature_sample_share=row.signature_sample_share,
        metrics_window_seconds=row.metrics_window_seconds,
        retention_days=row.retention_days,
        is_simulated=row.is_simulated,
        revision=row.revision,
        created_at=row.created_at,
    )
