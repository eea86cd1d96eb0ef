"""What stands beside the bytes in an upload: purpose, lifetime, file name. Text of the form, read strictly."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from slackwater.api.bodies import MAX_EXPIRY_SECONDS, MIN_EXPIRY_SECONDS
from slackwater.api.settings import ApiSettings
from slackwater.domain.errors import BadRequest

PURPOSES: Final = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
"""What an upload may be for; only a file for ``batch`` can be a batch's input."""

_ANCHOR: Final = "expires_after[anchor]"
_SECONDS: Final = "expires_after[seconds]"
_FIELDS: Final = frozenset({"purpose", _ANCHOR, _SECONDS})
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_MAX_FILENAME_CHARACTERS: Final = 512
_CONTROL: Final = frozenset({"Cc", "Cs"})


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadFields:
    """The form's fields, checked."""

    purpose: str
    filename: str
    expires_after: timedelta | None
    """None: kept until deleted."""


def read_fields(fields: Mapping[str, str], filename: str, settings: ApiSettings) -> UploadFields:
    """Check everything that came beside the bytes. Raises BadRequest that names the field."""
    for name in fields:
        if name not in _FIELDS:
            shown = name[:100]
            raise BadRequest(f"Unknown parameter: '{shown}'.", param=shown, code="unknown_parameter")
    purpose = _purpose(fields)
    expires_after = _expires_after(fields)
    if expires_after is None and purpose == "batch":
        expires_after = settings.batch_file_lifetime
    _check_filename(filename)
    if settings.require_jsonl_suffix and purpose == "batch" and not filename.endswith(".jsonl"):
        raise BadRequest("Invalid file format for Batch API. Must be .jsonl", param="file")
    return UploadFields(purpose=purpose, filename=filename, expires_after=expires_after)


def _purpose(fields: Mapping[str, str]) -> str:
    purpose = fields.get("purpose")
    if purpose is None:
        raise BadRequest("Missing required parameter: 'purpose'.", param="purpose", code="missing_required_parameter")
    if purpose not in PURPOSES:
        supported = ", ".join(f"'{each}'" for each in PURPOSES)
        raise BadRequest(
            f"Invalid value: '{purpose[:100]}'. Supported values are: {supported}.",
            param="purpose",
            code="invalid_value",
        )
    return purpose


def _expires_after(fields: Mapping[str, str]) -> timedelta | None:
    anchor, seconds = fields.get(_ANCHOR), fields.get(_SECONDS)
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise BadRequest(
            "Invalid value for 'expires_after.anchor'. The supported value is: 'created_at'.",
            param="expires_after.anchor",
            code="invalid_value",
        )
    if (
        seconds is None
        or _NUMBER.fullmatch(seconds) is None
        or not MIN_EXPIRY_SECONDS <= int(seconds) <= MAX_EXPIRY_SECONDS
    ):
        raise BadRequest(
            "Invalid value for 'expires_after.seconds': expected an integer from"
            f" {MIN_EXPIRY_SECONDS} to {MAX_EXPIRY_SECONDS}.",
            param="expires_after.seconds",
            code="invalid_value",
        )
    return timedelta(seconds=int(seconds))


def _check_filename(filename: str) -> None:
    """Refuse a name that would do harm where it is shown; that is all it is for, it is never a path."""
    if not filename.strip():
        raise BadRequest("The file part has no file name.", param="file", code="invalid_value")
    if len(filename) > _MAX_FILENAME_CHARACTERS:
        raise BadRequest(
            f"The file name is longer than {_MAX_FILENAME_CHARACTERS} characters.", param="file", code="invalid_value"
        )
    if any(unicodedata.category(each) in _CONTROL for each in filename):
        raise BadRequest("The file name holds control characters.", param="file", code="invalid_value")
