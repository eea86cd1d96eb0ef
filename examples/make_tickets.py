"""Writes ``tickets.jsonl``: the requests of the demo, the same ones every time.

Questions, short summaries, and support tickets to sort into one of four queues. They are chosen so that a model of
135 million parameters can answer them, and kept short so that one CPU core answers them all well within a minute.

    python examples/make_tickets.py examples/tickets.jsonl
"""

import json
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

from tickets_texts import CAPITALS_OF, QUESTIONS, SUMMARIES, TICKETS

MODEL = "smollm2-135m-instruct"
ENDPOINT = "/v1/chat/completions"

SORT_TICKETS = (
    "You sort support tickets. billing: charges, invoices, refunds. technical: errors, crashes, slowness. "
    "account: login, password, profile. shipping: parcels, delivery, tracking. Answer with one word."
)


def requests() -> Iterator[dict[str, object]]:
    """Give every request in the file's order: the kinds are mixed evenly, so that the first lines show them all."""
    kinds = [
        [
            request(f"capital-{number:03}", user=f"What is the capital of {country}?", max_tokens=16)
            for number, country in enumerate(CAPITALS_OF, start=1)
        ],
        [
            request(f"question-{number:03}", user=question, max_tokens=24)
            for number, question in enumerate(QUESTIONS, start=1)
        ],
        [
            request(f"summary-{number:03}", user=f"Summarize in one short sentence: {text}", max_tokens=32)
            for number, text in enumerate(SUMMARIES, start=1)
        ],
        [
            request(f"ticket-{queue}-{number:03}", system=SORT_TICKETS, user=ticket, max_tokens=8, choice=list(TICKETS))
            for queue, tickets in TICKETS.items()
            for number, ticket in enumerate(tickets, start=1)
        ],
    ]
    placed = [(place / len(kind), line) for kind in kinds for place, line in enumerate(kind)]
    return (line for _, line in sorted(placed, key=itemgetter(0)))


def request(
    custom_id: str, *, user: str, max_tokens: int, system: str | None = None, choice: list[str] | None = None
) -> dict[str, object]:
    """Build one line of a batch; ``choice`` makes the engine answer with one of these words and nothing else."""
    messages = [{"role": "system", "content": system}] if system else []
    body: dict[str, object] = {
        "model": MODEL,
        "messages": [*messages, {"role": "user", "content": user}],
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    if choice:
        body["structured_outputs"] = {"choice": choice}
    return {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}


def text() -> str:
    """Give the whole file."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in requests())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
