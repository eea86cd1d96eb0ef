"""What drivers raise becomes our errors, with safe messages and the cause attached."""

import errno

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from slackwater.blobs.failures import reading, writing
from slackwater.blobs.settings import StoreSettings
from slackwater.domain.errors import ObjectMissing, StoreUnavailable

SECRET = "http://10.0.0.7:9000/bucket?X-Amz-Signature=abc"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (GenericError(SECRET), "GenericError"),
        (PermissionDeniedError(SECRET), "refused our credentials"),
        (OSError(errno.ENOSPC, SECRET), "No space left on device"),
        (OSError(SECRET), "OSError"),
        (NotImplementedError(SECRET), "NotImplementedError"),
        (FileNotFoundError(f"NoSuchBucket {SECRET}"), "bucket"),
    ],
)
def test_a_failing_store_is_unavailable_and_says_no_more_than_is_safe(error: Exception, says: str) -> None:
    for edge in (reading("inputs/a"), writing("inputs/a")):
        with pytest.raises(StoreUnavailable) as caught, edge:
            raise error
        assert says in str(caught.value)
        assert "10.0.0.7" not in str(caught.value)
        assert caught.value.__cause__ is error


def test_what_is_not_found_is_missing_to_a_reader_and_a_broken_store_to_a_writer() -> None:
    with pytest.raises(ObjectMissing, match="inputs/a"), reading("inputs/a"):
        raise FileNotFoundError
    with pytest.raises(StoreUnavailable, match="does not exist"), writing("inputs/a"):
        raise FileNotFoundError


def test_our_own_errors_pass_unchanged() -> None:
    error = ObjectMissing("There is no object b in the store.")

    with pytest.raises(ObjectMissing) as caught, writing("a"):
        raise error

    assert caught.value is error


def test_settings_never_show_their_keys() -> None:
    shown = repr(StoreSettings(access_key_id="AKIA123", secret_access_key="s3cr3t"))

    assert "AKIA123" not in shown
    assert "s3cr3t" not in shown
