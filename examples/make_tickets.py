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

from tickets_texts import CAPITALS_OF, QUESTIONS, SORTED_TICKETS, SUMMARIES, TICKETS

MODEL = "smollm2-135m-instruct"
ENDPOINT = "/v1/chat/completions"

ONE_SENTENCE = [". ", "\n"]
"""Where an answer ends: a small model does not know when to stop."""


def requests() -> Iterator[dict[str, object]]:
    """Give every request in the file's order: the kinds are mixed evenly, so that the first lines show them all."""
    kinds = [
        [
            request(
                f"capital-{number:02}", question(f"What is the capital of {country}?"), max_tokens=16, stop=ONE_SENTENCE
            )
            for number, country in enumerate(CAPITALS_OF, start=1)
        ],
        [
            request(f"question-{number:02}", question(text), max_tokens=24, stop=ONE_SENTENCE)
            for number, text in enumerate(QUESTIONS, start=1)
        ],
        [
            request(f"summary-{number:02}", question(f"Summarize in one short sentence: {text}"), max_tokens=32)
            for number, text in enumerate(SUMMARIES, start=1)
        ],
        [
            request(
                f"ticket-{queue}-{number:02}",
                sorting(ticket),
                max_tokens=8,
                # The engine answers with one of these words and nothing else.
                structured_outputs={"choice": list(TICKETS)},
            )
            for queue, tickets in TICKETS.items()
            for number, ticket in enumerate(tickets, start=1)
        ],
    ]
    placed = [(place / len(kind), line) for kind in kinds for place, line in enumerate(kind)]
    return (line for _, line in sorted(placed, key=itemgetter(0)))


def question(text: str) -> list[dict[str, str]]:
    """Ask without further ado."""
    return [{"role": "user", "content": text}]


def sorting(ticket: str) -> list[dict[str, str]]:
    """Show the model one sorted ticket of each queue, then the one to sort."""
    system = f"Classify the support ticket: {', '.join(list(TICKETS)[:-1])} or {list(TICKETS)[-1]}."
    messages = [{"role": "system", "content": system}]
    for example, queue in SORTED_TICKETS:
        messages += [{"role": "user", "content": example}, {"role": "assistant", "content": queue}]
    return [*messages, *question(ticket)]


def request(custom_id: str, messages: list[dict[str, str]], **parameters: object) -> dict[str, object]:
    """Build one line of a batch."""
    body = {"model": MODEL, "messages": messages, "temperature": 0, **parameters}
    return {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}


def text() -> str:
    """Give the whole file."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in requests())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
