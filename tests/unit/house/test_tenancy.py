"""No tenant sees another's anything: whoever asks db/ for a tenant's rows must say which tenant asks."""

from pathlib import Path
from textwrap import dedent

import pytest

from slackwater.db.tables import metadata
from tests.unit.house.tenancy import unscoped_functions

DB = Path(__file__).parents[3] / "src/slackwater/db"

TENANT_TABLES = frozenset(
    {"tenants"} | {name for name, table in metadata.tables.items() if "tenant_id" in table.columns}
)

# Parts of db/ the rule does not hold for. What is not named here is held to it, new modules too.
EXEMPT = {
    "queue": "crosses tenants by design; an import contract lets only flow use it",
    "tables.py": "the schema itself",
}

# module.function -> why it may reach tenants' rows without a tenant.
ALLOWED = {
    "accounts.find_tenant": "operators' verb: the tenant is what is looked for",
    "accounts.list_tenants": "operators' verb: all tenants are what is asked for",
    "credentials.authenticate": "where a request's tenant comes from",
    "credentials.list_keys": "operators' verb, of one tenant or of all",
    "credentials.revoke_key": "operators' verb: a key is named by its own id",
}

IMPORTS = "from slackwater.db import tables\nfrom slackwater.db.tables import files, models\n"

MODULES = sorted(path for path in DB.rglob("*.py") if path.relative_to(DB).parts[0] not in EXEMPT)


def unscoped(path: Path) -> set[str]:
    module = ".".join(path.relative_to(DB).with_suffix("").parts)
    return {f"{module}.{found.name}" for found in unscoped_functions(path.read_text(), TENANT_TABLES)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(DB)))
def test_whoever_asks_for_a_tenants_rows_says_which_tenant_asks(path: Path) -> None:
    assert unscoped(path) - ALLOWED.keys() == set()


def test_no_exception_outlives_its_function() -> None:
    assert ALLOWED.keys() - {name for path in MODULES for name in unscoped(path)} == set()


def test_tenants_tables_are_found_in_the_schema() -> None:
    assert {"tenants", "api_keys", "files", "batches"} <= TENANT_TABLES
    assert "models" not in TENANT_TABLES


@pytest.mark.parametrize(
    "source",
    [
        "def get_file(file_id): return select(files).where(files.c.id == file_id)",
        "def get_file(file_id): return select(tables.files)",
        "def get_file(file_id, tenant_id=None): return select(files)",
        "def get_file(file_id, *, tenant_id=None): return select(files)",
        "def get_file(tenant_id: TenantId | None, file_id: FileId): return select(files)",
        "from slackwater.db.tables import files as stored\ndef get_file(file_id): return select(stored)",
        'def get_file(file_id): return text("SELECT id FROM files WHERE id = :id")',
        """
        COLUMNS = (files.c.id, files.c.bytes)
        def get_file(file_id): return select(*COLUMNS)
        """,
        """
        async def get_file(file_id): return await _row(file_id)
        async def _row(file_id): return await _select(file_id)
        async def _select(file_id): return select(files)
        """,
        """
        class Files:
            def get_file(self, file_id): return self._row(file_id)
            def _row(self, file_id): return select(files)
        """,
    ],
)
def test_a_function_that_reaches_a_tenants_table_without_a_tenant_is_found(source: str) -> None:
    found = unscoped_functions(IMPORTS + dedent(source), frozenset({"files"}))

    assert [(each.name.rsplit(".")[-1], each.tables) for each in found] == [("get_file", frozenset({"files"}))]


@pytest.mark.parametrize(
    "source",
    [
        "def get_file(tenant_id, file_id): return select(files).where(files.c.tenant_id == tenant_id)",
        "def get_file(*, tenant_id, file_id): return select(files).where(files.c.tenant_id == tenant_id)",
        "def _get_file(file_id): return select(files)",
        "def get_migrations(): return importlib.resources.files('slackwater')",
        "def get_model(name): return select(models).where(models.c.id == name)",
        'def get_model(name):\n    """Unlike files, models belong to nobody. FROM files"""\n    return select(models)',
    ],
)
def test_a_function_that_is_told_the_tenant_or_touches_none_is_left_alone(source: str) -> None:
    assert unscoped_functions(IMPORTS + source, frozenset({"files"})) == []
