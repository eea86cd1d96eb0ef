"""Whether the process lives, and whether it can serve."""

from dataclasses import replace
from typing import Any

from slackwater.api.dependencies import ApiDependencies
from slackwater.db.session import Database, PoolSettings
from slackwater.domain.errors import StoreUnavailable
from tests.api_under_test import Api, listening


async def test_a_whole_service_is_alive_and_ready_without_a_key(api: Api) -> None:
    http = api.http(headers={})

    assert (await http.get("/healthz")).json() == {"status": "ok"}
    assert (await http.head("/healthz")).status_code == 200
    assert (await http.get("/readyz")).json() == {"status": "ready", "database": "ok", "store": "ok"}


async def test_readiness_says_which_part_is_down_and_life_goes_on(api: Api, deps: ApiDependencies) -> None:
    class Down:
        async def size(self, key: str) -> int:
            raise StoreUnavailable("the object store does not answer; try again shortly")

    nowhere = Database.connect("postgresql://nobody@127.0.0.1:9/none", pool=PoolSettings(hot=1, other=1))
    down: Any = Down()
    without_store = replace(deps, blobs=down)
    for broken, part in [(without_store, "store"), (replace(deps, db=nowhere), "database")]:
        async with listening(broken) as origin:
            ready = await api.http().get(f"{origin}/readyz")
            alive = await api.http().get(f"{origin}/healthz")
            answered = await api.http().get(f"{origin}/v1/batches")
        assert ready.status_code == 503
        assert ready.json()[part] == "unavailable"
        assert alive.status_code == 200
        assert answered.status_code == (503 if part == "database" else 200)
    await nowhere.close()
