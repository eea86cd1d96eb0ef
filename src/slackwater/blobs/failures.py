"""Turns what drivers raise into the project's own errors, at the store's edge and nowhere else.

Messages name the object's key, which is made of our ids only, and never the driver's own text: that may hold addresses
or an answer's body. The driver's error stays attached as the cause.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from slackwater.domain.errors import ObjectMissing, StoreFull, StoreUnavailable

DRIVER_ERRORS: Final = (BaseError, OSError, NotImplementedError)


@contextmanager
def reading(key: str) -> Iterator[None]:
    """Raise ObjectMissing where the driver finds nothing under the key, StoreUnavailable for all else it raises."""
    try:
        yield
    except FileNotFoundError as error:
        # S3 answers 404 for a bucket that is gone too, and that must not read as "this object was deleted".
        if "NoSuchBucket" in str(error):
            raise StoreUnavailable("The object store's bucket does not exist. Create it first.") from error
        raise missing(key) from error
    except DRIVER_ERRORS as error:
        raise unavailable(key, error) from error


@contextmanager
def writing(key: str) -> Iterator[None]:
    """Raise StoreUnavailable for whatever the driver raises: a write finds nothing missing but the store itself."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise unavailable(key, error) from error


def missing(key: str) -> ObjectMissing:
    """Say that nothing is stored under the key."""
    return ObjectMissing(f"There is no object {key} in the store.")


def unavailable(key: str, error: Exception) -> StoreUnavailable:
    """Say why the store failed, as far as it is safe to say."""
    match error:
        case PermissionDeniedError() | UnauthenticatedError():
            return StoreUnavailable("The object store refused our credentials. Check the key, its secret, the bucket.")
        case FileNotFoundError():
            return StoreUnavailable("The object store's bucket or folder does not exist. Create it first.")
        case OSError(errno=(errno.ENOSPC | errno.EDQUOT) as number):
            why = os.strerror(number)
            return StoreFull(f"The object store is full ({why}). Nothing of this was kept; try again later.")
        case OSError(errno=int(number)):
            return StoreUnavailable(f"The object store failed on {key}: {os.strerror(number)}.")
        case _:
            reason = type(error).__name__
            return StoreUnavailable(f"The object store did not do as asked with {key} ({reason}). Try again later.")
