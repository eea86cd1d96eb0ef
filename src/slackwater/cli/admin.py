"""The operators' verbs: tenants, keys, models, workers. Each one is a short transaction on the site's database."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from slackwater.cli.admin_show import show_rows
from slackwater.cli.people_exits import exits, say
from slackwater.domain.endpoints import ENDPOINTS
from slackwater.domain.ids import KeyId, key_id, tenant_id

if TYPE_CHECKING:
    from slackwater.db.session import Database

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="JSON lines also on a terminal.")]

_ACTOR: Final = "command line"
_LONGEST_NAME: Final = 100
_MOST_DAYS: Final = 36_500.0
_MOST_WEIGHT: Final = 1_000_000.0

tenant = typer.Typer(name="tenant", help="Tenants: create, list.", no_args_is_help=True)
key = typer.Typer(name="key", help="API keys: create, list, revoke.", no_args_is_help=True)
model = typer.Typer(name="model", help="Models and their aliases: add, alias, list, remove.", no_args_is_help=True)
worker = typer.Typer(name="worker", help="Workers: list, drain.", no_args_is_help=True)


def with_database(act: "Callable[[Database], Awaitable[T]]") -> T:
    """Run one act on the site's database. Ends the command with one line on stderr where it fails."""
    from slackwater.cli.site_settings import site_settings
    from slackwater.db.session import Database

    async def run() -> T:
        db = Database.connect(site_settings().database_url.get_secret_value())
        try:
            return await act(db)
        finally:
            await db.close()

    with exits():
        return asyncio.run(run())
    raise AssertionError("exits() lets no error pass")


@tenant.command("create")
def tenant_create(
    name: Annotated[str, typer.Argument(help="A name of its own.")],
    weight: Annotated[
        float, typer.Option(min=0.001, max=_MOST_WEIGHT, help="Share of contended capacity, relative to others.")
    ] = 1.0,
    max_lines: Annotated[int | None, typer.Option(min=1, help="Most lines of one batch.")] = None,
    max_input_bytes: Annotated[int | None, typer.Option(min=1, help="Most bytes of one batch input.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Add a tenant."""
    from slackwater.cli.site import new_uuid
    from slackwater.db.accounts import create_tenant

    if not name.strip() or len(name) > _LONGEST_NAME:
        raise typer.BadParameter(f"a name has 1 to {_LONGEST_NAME} characters", param_hint="NAME")
    made = with_database(
        lambda db: create_tenant(
            db,
            tenant_id=tenant_id(new_uuid()),
            name=name,
            actor=_ACTOR,
            weight=weight,
            max_lines=max_lines,
            max_input_bytes=max_input_bytes,
        )
    )
    show_rows([made], as_json=as_json)


@tenant.command("list")
def tenant_list(*, as_json: AsJson = False) -> None:
    """List every tenant."""
    from slackwater.db.accounts import list_tenants

    show_rows(with_database(list_tenants), as_json=as_json)


@key.command("create")
def key_create(
    tenant_name: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name or id.")],
    *,
    operator: Annotated[bool, typer.Option("--operator", help="A key that may also operate the service.")] = False,
    days: Annotated[
        float | None, typer.Option(min=0.001, max=_MOST_DAYS, help="Days until it expires; never when unset.")
    ] = None,
) -> None:
    """Make an API key and print its secret, this once."""
    from slackwater.cli.site import new_uuid
    from slackwater.db.accounts import find_tenant
    from slackwater.db.credentials import SECRET_RANDOM_BYTES, create_key

    async def make(db: "Database") -> str:
        owner = await find_tenant(db, tenant_name)
        created = await create_key(
            db,
            key_id=key_id(new_uuid()),
            tenant_id=owner.id,
            random_bytes=secrets.token_bytes(SECRET_RANDOM_BYTES),
            actor=_ACTOR,
            role="operator" if operator else "tenant",
            expires_at=None if days is None else datetime.now(UTC) + timedelta(days=days),
        )
        say(f"{created.key.id} for tenant {owner.name}; the secret is shown only now")
        return created.secret

    typer.echo(with_database(make))


@key.command("list")
def key_list(
    tenant_name: Annotated[str | None, typer.Argument(metavar="[TENANT]", help="Only this tenant's.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List API keys, without their secrets."""
    from slackwater.db.accounts import find_tenant
    from slackwater.db.credentials import list_keys

    async def read(db: "Database") -> list[object]:
        owner = None if tenant_name is None else (await find_tenant(db, tenant_name)).id
        return [*await list_keys(db, tenant_id=owner)]

    show_rows(with_database(read), as_json=as_json)


@key.command("revoke")
def key_revoke(found_key: Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's id, `key_…`.")]) -> None:
    """End a key at once."""
    from slackwater.db.credentials import revoke_key

    revoked = with_database(lambda db: revoke_key(db, key_id=KeyId(found_key), actor=_ACTOR))
    say(f"{found_key} is revoked" if revoked else f"{found_key} was revoked before")


@model.command("add")
def model_add(
    name: Annotated[str, typer.Argument(help="The name the engines serve it under.")],
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Longest prompt plus output, in tokens.")] = None,
    endpoint: Annotated[list[str] | None, typer.Option(help="Where its lines may go; everywhere when unset.")] = None,
) -> None:
    """Make a model known: its lines are accepted, and wait for a worker."""
    from slackwater.db.catalog import add_model

    unknown = [path for path in endpoint or () if path not in ENDPOINTS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(ENDPOINTS)}", param_hint="--endpoint")
    with_database(
        lambda db: add_model(db, model_id=name, actor=_ACTOR, max_model_len=max_model_len, endpoints=endpoint)
    )
    say(f"{name} is known")


@model.command("alias")
def model_alias(
    alias: Annotated[str, typer.Argument(help="The name that customers write.")],
    name: Annotated[str, typer.Argument(metavar="MODEL", help="The model it stands for.")],
) -> None:
    """Let a name stand for a model."""
    from slackwater.db.catalog import add_alias

    with_database(lambda db: add_alias(db, alias=alias, model_id=name, actor=_ACTOR))
    say(f"{alias} stands for {name}")


@model.command("list")
def model_list(*, as_json: AsJson = False) -> None:
    """List the known models with their aliases and live workers."""
    from slackwater.db.catalog import list_models

    show_rows(with_database(list_models), as_json=as_json)


@model.command("remove")
def model_remove(name: Annotated[str, typer.Argument(help="A model, or an alias.")]) -> None:
    """Forget a model with its aliases, or one alias."""
    from slackwater.db.catalog import remove_model

    with_database(lambda db: remove_model(db, name=name, actor=_ACTOR))
    say(f"{name} is forgotten")


@worker.command("list")
def worker_list(*, as_json: AsJson = False) -> None:
    """List the workers."""
    from slackwater.db.catalog import list_workers

    show_rows(with_database(list_workers), as_json=as_json)


@worker.command("drain")
def worker_drain(
    name: Annotated[str, typer.Argument(metavar="WORKER", help="The worker's name.")],
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back into service.")] = False,
) -> None:
    """Let a worker finish what it holds and take nothing new."""
    from slackwater.db.catalog import set_draining

    with_database(lambda db: set_draining(db, worker_id=name, draining=not undo, actor=_ACTOR))
    say(f"{name} is back in service" if undo else f"{name} drains")
