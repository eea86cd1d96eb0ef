from typing import Any

import pytest

from slackwater.domain.media import is_plain_text, remote_media, remote_tools

IMAGE = "data:image/png;base64,iVBORw0KGgo="
FAR = "http://169.254.169.254/latest"


def part(**fields: Any) -> list[dict[str, Any]]:
    """Messages with one part."""
    return [{"role": "user", "content": [{"type": "text", "text": "what is this?"}, fields]}]


REMOTE = [
    part(type="image_url", image_url={"url": FAR}),
    part(type="image_url", image_url=FAR),
    part(image_url={"url": FAR}),
    part(type="input_image", image_url=FAR),
    part(type="video_url", video_url={"url": FAR}),
    part(type="audio_url", audio_url={"url": "ftp://h/a.wav"}),
    part(type="image_url", image_url={"url": "file:///etc/passwd"}),
    part(type="image_url", image_url={"url": "/etc/passwd"}),
    part(type="image_url", image_url={"url": "etc/passwd"}),
    part(type="image_url", image_url={"url": " data:image/png;base64,AAAA"}),
    part(type="image_url", image_url={"url": ""}),
    part(type="input_audio", input_audio={"data": FAR, "format": "wav"}),
    part(type="input_audio", input_audio={"data": "/etc/passwd", "format": "wav"}),
    part(type="image", image=FAR),
    part(type="image", image="C:\\secrets.png"),
    part(type="image", url=FAR),
    part(type="image", source={"type": "url", "url": FAR}),
    part(type="document", source={"type": "url", "url": "https://a.test/x.pdf"}),
    part(type="tool_result", content=[{"type": "image", "source": {"type": "url", "url": FAR}}]),
    part(type="input_file", file_url=FAR),
    part(type="file", file={"file_data": FAR}),
    part(type="images", images=[IMAGE, FAR]),
    [{"role": "user", "content": "hi", "images": [FAR]}],
    [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": FAR}]}],
]

INLINE = [
    "a prompt about http://169.254.169.254/",
    ["http://169.254.169.254/", 5],
    part(type="text", text="see http://169.254.169.254/"),
    part(type="image_url", image_url={"url": IMAGE, "detail": "low"}),
    part(type="image_url", image_url={"url": IMAGE.upper()}),
    part(type="input_audio", input_audio={"data": "UklGRg==", "format": "wav"}),
    part(type="image", image="/9j/4AAQSkZJRg=="),
    part(type="image", source={"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}),
    part(type="document", source={"type": "text", "data": "as http://a.test/ says"}),
    part(type="file", file={"file_id": "file-1"}),
    part(type="image_url", image_url={"url": None}),
    part(type="tool_use", id="1", name="open", input={"image_url": FAR}),
    part(type="output_text", text="x", annotations=[{"type": "url_citation", "url": FAR}]),
    part(type=5, url=FAR),
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"image_url": "http://x"}'}}]}],
]


@pytest.mark.parametrize("prompt", REMOTE)
def test_media_that_would_be_fetched_is_found(prompt: Any) -> None:
    assert remote_media(prompt, frozenset())
    assert not is_plain_text(prompt)


@pytest.mark.parametrize("prompt", INLINE)
def test_media_inside_the_request_and_urls_in_text_pass(prompt: Any) -> None:
    assert not remote_media(prompt, frozenset())


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://cdn.test/a.png", True),
        ("HTTPS://CDN.test:8443/a.png?x=1#y", True),
        ("http://cdn.test", True),
        ("https://cdn.test.evil.test/a.png", False),
        ("https://cdn.test@evil.test/a.png", False),
        ("https://user:pw@cdn.test/a.png", False),
        ("https://evil.test\\@cdn.test/a.png", False),
        ("https://cdn.test\n.evil.test/", False),
        ("https://cdn.test/a b", False),
        ("ftp://cdn.test/a.png", False),
        ("//cdn.test/a.png", False),
        ("https://cdn.test./", False),
        ("https://ｃdn.test/", False),  # noqa: RUF001 – a look-alike letter is the point
    ],
)
def test_only_the_hosts_that_the_operator_names_may_be_fetched_from(*, url: str, allowed: bool) -> None:
    prompt = part(type="image_url", image_url={"url": url})

    assert remote_media(prompt, frozenset({"cdn.test"})) is not allowed


def test_a_tool_that_is_a_server_elsewhere_is_found_and_a_schema_is_not_one() -> None:
    schema = {"type": "function", "function": {"parameters": {"properties": {"image_url": {"example": FAR}}}}}

    assert remote_tools([{"type": "mcp", "server_url": "http://10.0.0.1/"}], frozenset())
    assert not remote_tools([{"type": "mcp", "server_url": "http://tools.test/"}], frozenset({"tools.test"}))
    assert not remote_tools([schema, "odd", {"server_url": None}], frozenset())
    assert not remote_tools("odd", frozenset())


@pytest.mark.parametrize(
    ("messages", "plain"),
    [
        ("text", True),
        (["text", "more"], True),
        ([{"role": "user", "content": "hi"}], True),
        ([{"role": "user", "content": None}], False),
        ([{"role": "user", "content": "hi", "url": "x"}], False),
        ([1, 2], False),
        (None, False),
        ({"role": "user"}, False),
    ],
)
def test_plain_text_is_told_quickly(*, messages: Any, plain: bool) -> None:
    assert is_plain_text(messages) is plain
