"""Media in a request: what an engine would fetch by itself, from where the engine stands.

A URL in a message makes the engine open a connection, inside the operator's network and with its rights. Only what the
request carries itself (``data:`` URLs, base64) passes, and URLs of hosts that the operator allows by name. Whatever
could be read as a place instead (another scheme, a path, a host name in any spelling) is refused; nothing is resolved
and nothing is connected to. Keys are compared after decoding, so an escaped key hides nothing.
"""

import re
from collections.abc import Collection
from typing import Final

_URL_KEYS: Final = frozenset({"url", "uri", "image_url", "video_url", "audio_url", "file_url", "server_url"})
"""Their strings are places, wherever they stand in a part that is media."""
_DATA_KEYS: Final = frozenset(
    {"image", "images", "video", "videos", "audio", "audios", "input_image", "input_video", "input_audio", "file_data"}
)
"""Their strings are base64, or places to some engines."""
_MEDIA_KEYS: Final = (_URL_KEYS - {"url", "uri"}) | _DATA_KEYS
_MEDIA_TYPES: Final = re.compile(r"(?:input_)?(?:image|video|audio|file|document|mcp)(?:_url|_pil|_file)?")
"""Types of parts whose ``url`` or ``source`` is media although no key of theirs says so."""
_OPAQUE_KEYS: Final = frozenset({"input", "arguments", "annotations", "text"})
"""What a tool was called with and what an earlier answer cited: no engine fetches that."""
_PAYLOAD_KEYS: Final = _URL_KEYS | _DATA_KEYS | {"data", "source", "file"}

_DATA_URL: Final = re.compile(r"data:[^\\]", re.IGNORECASE)
_BASE64: Final = re.compile(r"(?!/(?!9j/))[A-Za-z0-9+/=_\s-]*")
"""The alphabet holds no colon, dot or backslash; of what begins with a slash only JPEG (``/9j/``) is no path."""
_HTTP_URL: Final = re.compile(r"https?://([a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::[0-9]+)?(?:[/?#][!-\[\]-~]*)?", re.IGNORECASE)
"""One spelling only: an ASCII host, no credentials, no backslash, no white space. Other readers agree on these."""


def remote_media(value: object, allowed_hosts: Collection[str]) -> bool:
    """Tell whether a prompt (or a list of tools) holds media that would have to be fetched from a host not allowed.

    ``allowed_hosts`` are lower-case host names, compared whole.
    """
    nodes = [value]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes.extend(child for child in node if isinstance(child, dict | list))
        elif isinstance(node, dict):
            if _names_media(node) and not all(_is_here(node[key], key, allowed_hosts) for key in _payload(node)):
                return True
            nodes.extend(
                child for key, child in node.items() if key not in _OPAQUE_KEYS and isinstance(child, dict | list)
            )
    return False


def remote_tools(tools: object, allowed_hosts: Collection[str]) -> bool:
    """Tell whether a list of tools names a server that the engine would talk to; schemas are not looked into."""
    if not isinstance(tools, list):
        return False
    servers = [tool["server_url"] for tool in tools if isinstance(tool, dict) and tool.get("server_url") is not None]
    return not all(_is_here(server, "server_url", allowed_hosts) for server in servers)


def is_plain_text(messages: object) -> bool:
    """Tell quickly whether these are messages (or texts) of nothing but strings, which hold no media and no depth."""
    if isinstance(messages, str):
        return True
    if not isinstance(messages, list):
        return False
    for message in messages:
        if isinstance(message, dict):
            for text in message.values():
                if not isinstance(text, str):
                    return False
            if not _PAYLOAD_KEYS.isdisjoint(message):
                return False
        elif not isinstance(message, str):
            return False
    return True


def _names_media(node: dict[object, object]) -> bool:
    if not _MEDIA_KEYS.isdisjoint(node):
        return True
    kind = node.get("type")
    return isinstance(kind, str) and _MEDIA_TYPES.fullmatch(kind) is not None


def _payload(node: dict[object, object]) -> list[object]:
    return [key for key in node if key in _PAYLOAD_KEYS]


def _is_here(value: object, key: object, allowed_hosts: Collection[str]) -> bool:
    """Tell whether everything below a media key is part of the request itself, or of an allowed host."""
    if isinstance(value, str):
        if _DATA_URL.match(value):
            return True
        if key not in _URL_KEYS and _BASE64.fullmatch(value):
            return True
        url = _HTTP_URL.fullmatch(value)
        return url is not None and url[1].lower() in allowed_hosts
    if isinstance(value, dict):
        # The ``data`` of a plain text document is the text.
        skipped = "data" if value.get("type") == "text" else None
        return all(_is_here(value[inner], inner, allowed_hosts) for inner in _payload(value) if inner != skipped)
    if isinstance(value, list):
        return all(_is_here(inner, key, allowed_hosts) for inner in value)
    return True
