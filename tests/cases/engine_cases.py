"""Cases whose outcome is the engine's to say: the same checks for the simulated engine and for a real one."""

import json
import time
from collections import Counter

from tests.cases.customer import Ended
from tests.cases.inputs import lines, read
from tests.cases.network import Listener
from tests.cases.recording import RecordingEngine
from tests.cases.site import Site
from tests.service import jsonl, line

_CPU_SECONDS = 1.0


async def check_bad_types(site: Site, engine: RecordingEngine, model: str) -> None:
    """V10: each odd body ends as the engine answers it alone; nothing is tried twice, nothing is a 5xx."""
    data = read("v12_bad_param_types.jsonl", model=model)

    ended = await site.acme.run(data)

    sent = Counter(request.body for request in engine.sent)
    assert ended.status == "completed"
    assert ended.counts[0] == len(lines(data)) == 12
    assert set(sent.values()) == {1}
    assert {"a-1", "a-3"} <= set(ended.answered)
    for raw in lines(data):
        request = json.loads(raw)
        result = (ended.answered | ended.refused)[request["custom_id"]]["response"]
        alone = await engine.inner.post(request["url"], json.dumps(request["body"]).encode(), timeout_seconds=60)
        assert result["status_code"] == alone.status, request["custom_id"]
        assert alone.status in {200, 400, 422}
        if alone.status != 200:
            assert result["body"]["error"]["message"]
            assert request["custom_id"] in ended.refused
    assert await engine.ready()


async def check_too_many_tokens(site: Site, model: str) -> None:
    """V11: a bound on the answer that no context holds is that line's error; the others run."""
    ended = await site.acme.run(read("v13_max_tokens_huge.jsonl", model=model))

    assert (ended.status, ended.counts) == ("completed", (3, 2, 1))
    response = ended.refused["mt"]["response"]
    assert response["status_code"] == 400
    assert "context length" in response["body"]["error"]["message"]
    assert set(ended.answered) == {"a-1", "a-3"}


async def check_long_prompt(site: Site, model: str) -> None:
    """V11: a prompt longer than the context is that line's error, and has one result like any other."""
    ended = await site.acme.run(read("v29_too_long_prompt.jsonl", model=model))

    assert (ended.status, ended.counts) == ("completed", (3, 2, 1))
    (refused,) = ended.refused.values()
    assert refused["response"]["status_code"] == 400
    assert "context length" in refused["response"]["body"]["error"]["message"]


def refused_unseen(ended: Ended, engine: RecordingEngine, custom_ids: set[str]) -> None:
    """Insist that these lines got a 400 without the engine ever having seen them."""
    assert ended.status == "completed"
    assert set(ended.refused) == custom_ids
    assert {result["response"]["status_code"] for result in ended.refused.values()} == {400}
    assert len(engine.sent) == ended.counts[1]


async def check_remote_media(site: Site, engine: RecordingEngine, model: str) -> None:
    """Z01, Z04: nothing that a body names is connected to, however its address is spelt."""
    data = read("v18_media_urls.jsonl", model=model)
    with Listener() as ear:
        heard = b"127.0.0.1:%d" % ear.port
        ended = await site.acme.run(data.replace(b"127.0.0.1:5432", heard).replace(b"localhost:8000", heard))
        assert ear.callers() == 0
    refused_unseen(ended, engine, {f"i{n}" for n in range(12)})
    messages = {result["response"]["body"]["error"]["message"] for result in ended.refused.values()}
    assert not any(word in message for message in messages for word in ("127.0.0.1", "passwd", "169.254"))


async def check_media_parts(site: Site, engine: RecordingEngine, model: str) -> None:
    """Z04: files of the engine's machine, and every part that media may come in."""
    with Listener() as ear:
        places = ("file:///etc/passwd", "/etc/passwd", "~/.ssh/id_rsa", f"http://127.0.0.1:{ear.port}/x", "C:\\x.png")
        parts = [
            part
            for place in places
            for part in (
                {"type": "image_url", "image_url": {"url": place}},
                {"type": "image_url", "image_url": place},
                {"type": "audio_url", "audio_url": {"url": place}},
                {"type": "video_url", "video_url": {"url": place}},
                {"type": "input_audio", "input_audio": {"data": place, "format": "wav"}},
                {"type": "input_image", "image_url": place},
            )
        ]
        data = jsonl(line(f"m{n}", [part], model=model) for n, part in enumerate(parts))  # type: ignore[arg-type]
        ended = await site.acme.run(data)
        assert ear.callers() == 0
    refused_unseen(ended, engine, {f"m{n}" for n in range(len(parts))})


async def check_chat_templates(site: Site, engine: RecordingEngine, model: str) -> None:
    """Z10: templates of the customer's own are never rendered; flags for the model's own template pass."""
    before = time.process_time()
    ended = await site.acme.run(read("v15_chat_template_in_body.jsonl", model=model))
    spent = time.process_time() - before

    refused_unseen(ended, engine, {"j1", "j2"})
    assert set(ended.answered) == {"a-1", "j3"}
    assert any(b"enable_thinking" in request.body for request in engine.sent)
    assert spent < _CPU_SECONDS
