"""A bucket is made fit for use without harm to what is in it, on SeaweedFS and on moto."""

from typing import TYPE_CHECKING

import pytest

from slackwater.blobs.bucket import RULE_ID, BucketReport, prepare_bucket
from slackwater.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from tests.s3 import S3Server

pytest_plugins = ("tests.s3",)


@pytest.fixture(params=["seaweedfs", "moto_server"])
def server(request: pytest.FixtureRequest) -> "S3Server":
    found: S3Server = request.getfixturevalue(request.param)
    return found


async def test_a_bucket_is_made_once(server: "S3Server") -> None:
    first = await prepare_bucket("s3://made-by-us/prefix", settings=server.settings())
    second = await prepare_bucket("s3://made-by-us/prefix", settings=server.settings())

    assert first == BucketReport(created=True, aborts_stale_uploads=True)
    assert second == BucketReport(created=False, aborts_stale_uploads=True)
    with server.client() as client:
        rules = client.get_bucket_lifecycle_configuration(Bucket="made-by-us")["Rules"]
    assert [rule["ID"] for rule in rules] == [RULE_ID]
    assert rules[0]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}


async def test_the_rules_of_others_stay(server: "S3Server") -> None:
    with server.client() as client:
        client.create_bucket(Bucket="has-rules")
        client.put_bucket_lifecycle_configuration(
            Bucket="has-rules",
            LifecycleConfiguration={
                "Rules": [
                    {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 9}}
                ]
            },
        )

        await prepare_bucket("s3://has-rules", settings=server.settings())

        rules = client.get_bucket_lifecycle_configuration(Bucket="has-rules")["Rules"]
    assert {rule["ID"] for rule in rules} == {"theirs", RULE_ID}


async def test_a_refused_key_is_said_without_the_secret(server: "S3Server") -> None:
    if not server.checks_keys:
        pytest.skip("moto checks no keys")

    with pytest.raises(StoreUnavailable) as caught:
        await prepare_bucket("s3://made-by-us", settings=server.settings(secret="a-wrong-secret"))

    assert "a-wrong-secret" not in str(caught.value)


async def test_a_folder_needs_nothing(server: "S3Server") -> None:
    assert await prepare_bucket("/srv/objects", settings=server.settings()) is None
