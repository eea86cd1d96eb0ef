"""Asks an engine for the proof that it is well (``domain/proofs``)."""

from typing import Final, NamedTuple

from slackwater.domain.errors import EngineError
from slackwater.domain.proofs import Health, Ill, Refused, judge, judge_refusals, proof_requests
from slackwater.domain.replies import Reply
from slackwater.inference.protocol import Engine

_PROOF_SECONDS: Final = 30.0


class Asked(NamedTuple):
    """What is in doubt: the answers of one model at one endpoint."""

    model: str
    endpoint: str


async def ask_for_proof(engine: Engine, about: Asked | None) -> Health:
    """Ask with one tiny request, a few where the first kinds are refused; without ``about``, for any model it has."""
    try:
        names = [model.name for model in await engine.models()]
    except EngineError as error:
        return Ill(str(error))
    model = about.model if about is not None else next(iter(names), None)
    if model is None or model not in names:
        return Ill("it no longer lists its model")
    refusals: list[Refused] = []
    for path, body in proof_requests(model, about.endpoint if about is not None else None):
        health = judge(await _post(engine, path, body), names=names)
        if not isinstance(health, Refused):
            return health
        refusals.append(health)
    return judge_refusals(refusals)


async def _post(engine: Engine, path: str, body: bytes) -> Reply | EngineError:
    try:
        return await engine.post(path, body, timeout_seconds=_PROOF_SECONDS)
    except EngineError as error:
        return error
