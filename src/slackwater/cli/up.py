"""``slackwater up``: the whole service on one machine, as child processes on 127.0.0.1, with nothing to install first.

Brings up PostgreSQL (unless the settings name one), migrates, makes a tenant and a key, starts the roles, waits until
the API is ready, says how to use it, and stays until it is told to stop. Then everything is ended, workers first.
"""

import asyncio
import json
import logging
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from slackwater.blobs.bucket import prepare_bucket
from slackwater.cli.children import Child, Role
from slackwater.cli.data_folder import only_one, store_url_of
from slackwater.cli.folders import Folders
from slackwater.cli.people_exits import say
from slackwater.cli.ports import port_or_free, probe_ports, reachable
from slackwater.cli.profile import Profile, read_profile, write_profile
from slackwater.cli.site import new_uuid, stop_event, store_settings
from slackwater.cli.up_database import UpDatabase, open_database
from slackwater.config import PREFIX, Settings
from slackwater.db.accounts import create_tenant, find_tenant
from slackwater.db.catalog import add_alias, add_model
from slackwater.db.credentials import SECRET_RANDOM_BYTES, authenticate, create_key
from slackwater.db.migrate import migrate
from slackwater.db.session import Database
from slackwater.domain.errors import NotFound, SetupError
from slackwater.domain.ids import key_id, tenant_id

_LOG: Final = structlog.get_logger("slackwater.up")
_TENANT: Final = "default"
_ACTOR: Final = "slackwater up"
_READY_SECONDS: Final = 60.0
_READY_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class UpOptions:
    """What the command line asked for, beyond the settings."""

    aliases: Mapping[str, str]
    """Model by the name that stands for it."""
    workers: int
    model_name: str | None
    """The name under which the model will be served, where it is known before the engine is up."""
    max_model_len: int | None


def up(settings: Settings, folders: Folders, options: UpOptions) -> None:
    """Bring the service up and stay until told to stop."""
    for folder in (folders.data, folders.logs, folders.scratch):
        folder.mkdir(parents=True, exist_ok=True)
    folders.data.chmod(0o700)
    with only_one(folders.data):
        say(f"starting in {folders.data} …")
        with open_database(settings, folders) as database:
            store_url = store_url_of(settings, folders)
            # `slackwater migrate` shows what alembic does; here nobody has asked.
            logging.getLogger("alembic").setLevel(logging.WARNING)
            migrate(database.url)
            with asyncio.Runner() as runner:
                runner.run(_Service(settings, folders, options, database, store_url).run())


class _Service:
    """The running service of one ``up``."""

    def __init__(
        self, settings: Settings, folders: Folders, options: UpOptions, database: UpDatabase, store_url: str
    ) -> None:
        self._settings = settings
        self._folders = folders
        self._options = options
        self._database = database
        self._database_url = database.url
        self._store_url = store_url
        chosen = "api_port" in settings.model_fields_set
        self._api_port = settings.api_port if chosen else port_or_free(settings.api_host, settings.api_port)
        self._probes: dict[str, int] = {}

    @property
    def _base_url(self) -> str:
        return f"http://{reachable(self._settings.api_host)}:{self._api_port}/v1"

    async def run(self) -> None:
        """Start every role, say how to use the service, wait for the end, and end every role."""
        stop = stop_event()
        await prepare_bucket(self._store_url, settings=store_settings(self._settings))
        profile = await self._make_ready()
        self._write_site()
        children = [Child(role) for role in self._roles()]
        supervisors = [asyncio.create_task(child.supervise(), name=child.role.name) for child in children]
        supervisors.append(asyncio.create_task(self._database.supervise(), name="database"))
        try:
            if await self._wait_until_ready(stop):
                write_profile(self._folders.profile, profile)
                self._greet(profile)
                await stop.wait()
        finally:
            say("ending …")
            # Workers first: what they give back on their way out still finds a database.
            for child in reversed(children):
                await child.stop()
            for supervisor in supervisors:
                supervisor.cancel()
            await asyncio.gather(*supervisors, return_exceptions=True)
            self._folders.site.unlink(missing_ok=True)

    async def _make_ready(self) -> Profile:
        """Make the tenant, a key that works, the model and its aliases."""
        db = Database.connect(self._database_url)
        try:
            await self._register_models(db)
            return await self._credentials(db)
        finally:
            await db.close()

    async def _credentials(self, db: Database) -> Profile:
        """Keep the key of an earlier start, or make one."""
        earlier = read_profile(self._folders.profile)
        if earlier is not None and await authenticate(db, earlier.api_key) is not None:
            return Profile(base_url=self._base_url, api_key=earlier.api_key, tenant=earlier.tenant)
        try:
            tenant = await find_tenant(db, _TENANT)
        except NotFound:
            tenant = await create_tenant(db, tenant_id=tenant_id(new_uuid()), name=_TENANT, actor=_ACTOR)
        created = await create_key(
            db,
            key_id=key_id(new_uuid()),
            tenant_id=tenant.id,
            random_bytes=secrets.token_bytes(SECRET_RANDOM_BYTES),
            actor=_ACTOR,
        )
        return Profile(base_url=self._base_url, api_key=created.secret, tenant=tenant.name)

    async def _register_models(self, db: Database) -> None:
        """Make the model known before its engine has loaded, so that a batch may be sent at once."""
        if self._options.model_name is not None:
            await add_model(
                db, model_id=self._options.model_name, max_model_len=self._options.max_model_len, actor=_ACTOR
            )
        for alias, model in self._options.aliases.items():
            if model != self._options.model_name:
                await add_model(db, model_id=model, actor=_ACTOR)
            await add_alias(db, alias=alias, model_id=model, actor=_ACTOR)

    def _write_site(self) -> None:
        """Tell the administration's verbs on this machine where the database and the store are."""
        lines = [f"database_url = {json.dumps(self._database_url)}\n", f"store_url = {json.dumps(self._store_url)}\n"]
        self._folders.site.unlink(missing_ok=True)
        descriptor = os.open(self._folders.site, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.writelines(lines)

    def _roles(self) -> list[Role]:
        """List the children in the order in which they start."""
        probes = probe_ports(self._settings.probe_port, 2 + self._options.workers)
        roles = [
            self._role(
                "api", probes[0], stop_seconds=20.0, API_HOST=self._settings.api_host, API_PORT=str(self._api_port)
            ),
            self._role("control", probes[1], stop_seconds=20.0),
        ]
        for n in range(self._options.workers):
            grace = self._settings.drain_grace_seconds + 20.0
            roles.append(self._role("work", probes[2 + n], stop_seconds=grace, WORKER_ID=f"worker-{n + 1}"))
        return roles

    def _role(self, name: str, probe_port: int, *, stop_seconds: float, **more: str) -> Role:
        """Describe one child: our own settings, and what is different for it."""
        worker = more.get("WORKER_ID", name)
        self._probes[worker] = probe_port
        overrides = {
            "DATABASE_URL": self._database_url,
            "STORE_URL": self._store_url,
            "PROBE_PORT": str(probe_port),
            "SCRATCH_DIR": str(self._settings.scratch_dir or self._folders.scratch),
            "ENGINE_ENVIRONMENT": str(self._folders.engine),
            "ENGINE_LOG": str(self._folders.logs / f"{worker}-engine.log"),
            "LOG_FORMAT": "json",
            **_engine_settings(self._settings),
            **more,
        }
        environment = dict(os.environ) | {PREFIX + key: value for key, value in overrides.items()}
        return Role(
            name=name,
            environment=environment,
            log=self._folders.logs / f"{worker}.log",
            stop_seconds=stop_seconds,
        )

    async def _wait_until_ready(self, stop: asyncio.Event) -> bool:
        """Wait for the API; False when told to stop first. Raises SetupError when it does not come up."""
        url = self._base_url.removesuffix("/v1") + "/readyz"
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not stop.is_set():
                    if await asyncio.to_thread(_answers, url):
                        return True
                    await asyncio.sleep(_READY_POLL_SECONDS)
        except TimeoutError:
            raise SetupError(f"the API did not come up; its log is {self._folders.logs / 'api.log'}") from None
        return False

    def _greet(self, profile: Profile) -> None:
        """Say where the service is and how to try it."""
        lines = [
            "",
            "Slackwater is up.",
            f"  base URL  {profile.base_url}",
            f"  tenant    {profile.tenant}",
            f"  API key   {profile.api_key}",
            f"  data      {self._folders.data}",
            "  metrics   " + ", ".join(f"{name} 127.0.0.1:{port}" for name, port in self._probes.items()),
            "",
            "Try it:",
            "  slackwater run examples/tickets.jsonl > results.jsonl",
            f"  OPENAI_BASE_URL={profile.base_url} OPENAI_API_KEY={profile.api_key} python examples/openai_batch.py",
            "",
            "Ctrl-C ends it.",
        ]
        print("\n".join(lines), flush=True)  # noqa: T201  a greeting on stdout is this command's result


def _engine_settings(settings: Settings) -> dict[str, str]:
    """Hand the engine's settings down, where the command line changed them."""
    names = ("engine", "engine_url", "engine_model", "engine_served_name", "max_model_len", "max_num_seqs")
    values = {name.upper(): getattr(settings, name) for name in names if name in settings.model_fields_set}
    handed = {name: str(value) for name, value in values.items() if value is not None}
    if settings.engine_api_key is not None:
        handed["ENGINE_API_KEY"] = settings.engine_api_key.get_secret_value()
    if settings.engine_args:
        handed["ENGINE_ARGS"] = json.dumps(settings.engine_args)
    return handed


def _answers(url: str) -> bool:
    """Ask the API whether it is ready."""
    try:
        # No proxy: what we ask listens on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == 200)  # noqa: PLR2004
    except (urllib.error.URLError, OSError):
        return False
