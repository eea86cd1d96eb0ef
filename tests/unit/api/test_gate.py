"""Which path is served under which spelling."""

import pytest

from slackwater.api.gate import served_path


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        ("/v1/batches", "/v1/batches"),
        ("/v1/batches/", "/v1/batches"),
        ("/batches", "/v1/batches"),
        ("/batches/batch_1/cancel/", "/v1/batches/batch_1/cancel"),
        ("/files/file-1/content", "/v1/files/file-1/content"),
        ("/models/org/name", "/v1/models/org/name"),
        ("/healthz", "/healthz"),
        ("/batchesx", "/batchesx"),
        ("/", "/"),
        ("", "/"),
        ("///", "/"),
        ("//batches", "//batches"),
        ("*", "*"),
    ],
)
def test_a_slash_and_a_missing_prefix_do_not_matter(asked: str, served: str) -> None:
    assert served_path(asked) == served
