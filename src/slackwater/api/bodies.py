"""JSON bodies: read up to a limit, parsed strictly from the raw bytes, refused by the name of the field."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from slackwater.domain.errors import BadRequest, TooLarge

MIN_EXPIRY_SECONDS: Final = 3600
MAX_EXPIRY_SECONDS: Final = 2_592_000
_SHOWN_CHARACTERS: Final = 100

Body = TypeVar("Body", bound=BaseModel)


def _without_nul(text: str) -> str:
    """Refuse U+0000, which PostgreSQL can store in no text."""
    if "\0" in text:
        raise PydanticCustomError("nul", "the character U+0000 is not allowed")
    return text


MetadataKey = Annotated[str, StringConstraints(max_length=64), AfterValidator(_without_nul)]
MetadataValue = Annotated[str, StringConstraints(max_length=512), AfterValidator(_without_nul)]


class ExpiresAfter(BaseModel):
    """How long a file is kept, counted from its creation."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=MIN_EXPIRY_SECONDS, le=MAX_EXPIRY_SECONDS)]


class CreateBatch(BaseModel):
    """The body of POST /v1/batches. ``invalid_lines`` is ours; SDKs reach it by ``extra_body``."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    output_expires_after: ExpiresAfter | None = None
    invalid_lines: Literal["fail", "error"] = "fail"


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """Return the whole body. Raises TooLarge as soon as it is known to be over the limit."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > max_bytes:
            raise TooLarge(f"The request body is over the limit of {max_bytes} bytes.")
    return bytes(body)


def parse_body(kind: type[Body], raw: bytes) -> Body:
    """Return the body as what it must be. Raises BadRequest that names the field; the first fault only."""
    if not raw.strip():
        raise BadRequest("The request body is empty. Send a JSON object.")
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        raise _refusal(faults[0]) from error


def _refusal(fault: ErrorDetails) -> BadRequest:
    """Say one fault in the words of the API."""
    where = fault["loc"]
    if not where:
        return _unreadable(fault)
    param, path = str(where[0])[:_SHOWN_CHARACTERS], _dotted(where)[:_SHOWN_CHARACTERS]
    match fault["type"]:
        case "missing":
            return BadRequest(f"Missing required parameter: '{path}'.", param=param, code="missing_required_parameter")
        case "extra_forbidden":
            return BadRequest(f"Unknown parameter: '{path}'.", param=param, code="unknown_parameter")
        case "literal_error":
            expected = fault.get("ctx", {}).get("expected", "")
            message = f"Invalid value for '{path}'. Supported values are: {expected}."
            return BadRequest(message, param=param, code="invalid_value")
        case kind if kind.endswith("_type"):
            return BadRequest(f"Invalid type for '{path}': {fault['msg']}.", param=param, code="invalid_type")
        case _:
            return BadRequest(f"Invalid value for '{path}': {fault['msg']}.", param=param, code="invalid_value")


def _unreadable(fault: ErrorDetails) -> BadRequest:
    if fault["type"] == "json_invalid":
        detail: Any = fault.get("ctx", {}).get("error", "")
        return BadRequest(f"The request body is not valid JSON: {detail}.", code="invalid_json")
    return BadRequest("The request body must be a JSON object.", code="invalid_type")


def _dotted(where: Sequence[int | str]) -> str:
    """Join the way to a field: ``metadata.k``. ``[key]`` is pydantic's word for a key of a mapping."""
    return ".".join(str(part) for part in where if part != "[key]")
