"""The HTTP API over real PostgreSQL and a local object store."""

from collections.abc import AsyncIterator

import pytest

from slackwater.api.dependencies import ApiDependencies
from slackwater.blobs.protocol import BlobStore
from slackwater.db.session import Database
from tests.api_under_test import Api, dependencies, running_api


@pytest.fixture
def deps(db: Database, store: BlobStore) -> ApiDependencies:
    return dependencies(db, store)


@pytest.fixture
async def api(deps: ApiDependencies) -> AsyncIterator[Api]:
    async with running_api(deps) as running:
        yield running
