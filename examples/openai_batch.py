"""A batch with the stock OpenAI SDK, as in any tutorial: only the environment says that it is Slackwater.

OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=sk-… python examples/openai_batch.py [FILE]
"""

import sys
import time
from pathlib import Path

from openai import OpenAI

client = OpenAI()

batch_input_file = client.files.create(
    file=Path(sys.argv[1] if len(sys.argv) > 1 else "examples/tickets.jsonl"),
    purpose="batch",
)

batch = client.batches.create(
    input_file_id=batch_input_file.id,
    endpoint="/v1/chat/completions",
    completion_window="24h",
)

while batch.status not in {"completed", "failed", "expired", "cancelled"}:
    time.sleep(1)
    batch = client.batches.retrieve(batch.id)

print(batch.status, batch.request_counts, file=sys.stderr)
for error in (batch.errors.data if batch.errors else None) or []:
    print(f"line {error.line}: {error.message}", file=sys.stderr)
if batch.output_file_id:
    print(client.files.content(batch.output_file_id).text, end="")
if batch.error_file_id:
    print(client.files.content(batch.error_file_id).text, end="", file=sys.stderr)
