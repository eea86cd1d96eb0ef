"""Object names are made of our own ids only, and tell whose they are."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.blobs import keys
from slackwater.domain.ids import LeaseToken, batch_id, file_id

BATCH = batch_id(uuid.UUID(int=7))
FILE = file_id(uuid.UUID(int=8))
CLAIM = uuid.UUID(int=9)
LEASE = LeaseToken(uuid.UUID(int=10))

EVERY_KEY = {
    keys.input_key(FILE): FILE,
    keys.plan_key(BATCH, CLAIM): BATCH,
    keys.plan_index_key(BATCH, CLAIM): BATCH,
    keys.plan_errors_key(BATCH, CLAIM): BATCH,
    keys.part_output_key(BATCH, 3, LEASE): BATCH,
    keys.part_errors_key(BATCH, 3, LEASE): BATCH,
    keys.output_key(BATCH, CLAIM): BATCH,
    keys.errors_key(BATCH, CLAIM): BATCH,
}


def test_every_kind_of_object_has_a_name_of_its_own() -> None:
    assert len(EVERY_KEY) == 8
    assert keys.part_output_key(BATCH, 3, LEASE) == f"parts/{BATCH}/3-{LEASE.hex}.out"
    assert keys.part_output_key(BATCH, 3, LEASE).startswith(keys.parts_prefix(BATCH) + "/")
    assert keys.plan_key(BATCH, CLAIM).startswith(keys.plans_prefix(BATCH) + "/")


@pytest.mark.parametrize(("key", "owner"), EVERY_KEY.items())
def test_a_name_tells_its_owner_and_lives_in_a_known_folder(key: str, owner: str) -> None:
    assert keys.owner_of(key) == owner
    assert key.startswith(tuple(f"{folder}/" for folder in keys.FOLDERS))
    assert keys.checked(key) == key


@pytest.mark.parametrize("key", ["", "inputs", "inputs/notes.txt", "elsewhere/" + FILE, "inputs/file-12"])
def test_a_strange_name_has_no_owner(key: str) -> None:
    assert keys.owner_of(key) is None


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "a/.hidden", "a\nb", "ä", "a b", "A"]
)
def test_a_name_that_could_leave_the_store_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="not an object key"):
        keys.checked(key)


@given(st.text())
def test_no_accepted_name_climbs(key: str) -> None:
    try:
        keys.checked(key)
    except ValueError:
        return
    assert not key.startswith("/")
    assert all(name not in {"", ".", ".."} for name in key.split("/"))
