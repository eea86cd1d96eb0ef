"""Any server that speaks the OpenAI API: vLLM, SGLang, TGI, llama.cpp, Ollama, and our own simulated one.

Lines go through :class:`~slackwater.inference.http_client.HttpClient`; everything that is asked now and then
(models, health, gauges) through aiohttp. Servers without ``/health``, without ``/metrics`` or without
``max_model_len`` are served all the same.
"""

from typing import Final

import aiohttp
import msgspec

from slackwater.domain.errors import EngineUnreachable
from slackwater.inference.engine_gauges import read_load
from slackwater.inference.http_client import HttpClient, HttpLimits
from slackwater.inference.protocol import Engine, EngineLoad, Reply, ServedModel

_OK: Final = 200
_ABSENT: Final = frozenset({404, 405, 501})
"""How servers say that they have no such page."""
_ASKING_SECONDS: Final = 10.0
_LARGEST_PAGE_BYTES: Final = 16 * 1024 * 1024


class OpenAIServer(Engine):
    """An engine behind a URL, ``http://host:8000`` with or without ``/v1``.

    ``api_key`` is the engine's own. Opens nothing before it is asked; one event loop per instance.
    """

    def __init__(self, base_url: str, *, api_key: str | None = None, limits: HttpLimits | None = None) -> None:
        """Raises SetupError for a URL or a key that cannot be used."""
        self._client = HttpClient(base_url, api_key=api_key, limits=limits or HttpLimits())
        self._root = base_url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key is not None else {}
        self._session: aiohttp.ClientSession | None = None
        self._knows_priority = False
        self._closed = False

    @property
    def knows_priority(self) -> bool:
        """True once ``models`` has recognised vLLM, which owns what it serves; false before."""
        return self._knows_priority

    async def post(self, path: str, body: bytes, *, timeout_seconds: float) -> Reply:
        """See the protocol; a redirect comes back as a reply, a gzipped answer as the bytes it is."""
        return await self._client.post(path, body, timeout_seconds=timeout_seconds)

    async def models(self) -> list[ServedModel]:
        """See the protocol; names without an id are left out."""
        status, page = await self._ask("/v1/models")
        if status != _OK:
            raise EngineUnreachable(f"The engine answered status {status} when asked for its models.")
        try:
            listed = msgspec.json.decode(page, type=_ModelList).data
        except msgspec.DecodeError as error:
            raise EngineUnreachable("The engine's list of models cannot be read.") from error
        self._knows_priority |= any(model.owned_by == "vllm" for model in listed)
        return [ServedModel(name=model.id, max_model_len=model.max_model_len) for model in listed if model.id]

    async def ready(self) -> bool:
        """Tell whether the server is healthy, where it says so, and lists a model to a caller with our key."""
        try:
            status, _ = await self._ask("/health")
            return (status == _OK or status in _ABSENT) and bool(await self.models())
        except EngineUnreachable:
            return False

    async def load(self) -> EngineLoad:
        """See the protocol."""
        status, page = await self._ask("/metrics")
        text = page.decode("utf-8", "replace") if status == _OK else ""
        try:
            return read_load(text)
        except ValueError as error:
            raise EngineUnreachable("The engine's metrics cannot be read.") from error

    async def revive(self) -> None:
        """See the protocol: a server behind a URL is somebody else's to start."""

    async def close(self) -> None:
        """Drop all connections; calls in flight end with EngineUnreachable."""
        self._closed = True
        await self._client.close()
        if self._session is not None:
            await self._session.close()

    async def _ask(self, path: str) -> tuple[int, bytes]:
        if self._closed:
            raise EngineUnreachable("The connection to the engine was closed on our side.")
        if self._session is None:
            # Made here because aiohttp wants a running loop; cookies and redirects have no business at an engine.
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=_ASKING_SECONDS),
            )
        try:
            async with self._session.get(self._root + path, allow_redirects=False) as response:
                return response.status, await _whole(response.content)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineUnreachable("The engine cannot be reached now.") from error


async def _whole(stream: aiohttp.StreamReader) -> bytes:
    page = bytearray()
    async for piece in stream.iter_any():
        page += piece
        if len(page) > _LARGEST_PAGE_BYTES:
            raise EngineUnreachable("The engine's page is far larger than such a page should be.")
    return bytes(page)


class _Model(msgspec.Struct):
    id: str = ""
    owned_by: str | None = None
    max_model_len: int | None = None


class _ModelList(msgspec.Struct):
    data: list[_Model]
