"""What all answers have in common."""

import msgspec
from starlette.responses import Response


def json_reply(value: msgspec.Struct, *, status: int = 200) -> Response:
    """Answer with one object of ``wire``."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def id_headers(request_id: str) -> dict[str, str]:
    """Name a request on its answer: one family of clients reads the first header, the other the second."""
    return {"x-request-id": request_id, "request-id": request_id}
