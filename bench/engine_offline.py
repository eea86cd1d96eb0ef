"""vLLM without a server of its own: ``LLM.chat`` or ``run_batch``, loaded once, run as often as asked.

Run by the engine's interpreter: ``engine_offline.py generate|run_batch MODEL NAME``. Each line on stdin is the path of
a batch input; for each, one line ``RESULT {...}`` on stdout gives the seconds from the first request to the last
answer and the number of answers. The model is loaded before the first is read.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

KV_CACHE_BYTES = 128 * 1024 * 1024
CONTEXT_TOKENS = 2048
SEQUENCES = 128
OUTPUT_TOKENS = 64


def say(result: dict[str, object]) -> None:
    """Tell the benchmark; vLLM's own log goes to stdout too."""
    sys.stdout.write(f"\nRESULT {json.dumps(result)}\n")
    sys.stdout.flush()


def generate(model: str) -> None:
    """Answer each input with ``LLM.chat``, which renders the prompts and generates all of them at once."""
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]  # noqa: PLC0415  the engine's own

    engine = LLM(
        model=model,
        enforce_eager=True,
        max_num_seqs=SEQUENCES,
        max_model_len=CONTEXT_TOKENS,
        kv_cache_memory_bytes=KV_CACHE_BYTES,
        enable_prefix_caching=False,
        distributed_executor_backend="uni",
    )
    sampling = SamplingParams(temperature=0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
    say({"ready": True})
    for path in sys.stdin:
        lines = Path(path.strip()).read_text().splitlines()
        conversations = [json.loads(line)["body"]["messages"] for line in lines]
        began = time.perf_counter()
        answers = engine.chat(conversations, sampling, use_tqdm=False)
        seconds = time.perf_counter() - began
        tokens = sum(len(answer.outputs[0].token_ids) for answer in answers)
        say({"seconds": seconds, "answers": len(answers), "tokens": tokens})


async def run_batch(model: str, name: str) -> None:
    """Answer each input with vLLM's own batch runner, which reads the file and writes one with the results."""
    from vllm.entrypoints.launchers import (  # type: ignore[import-not-found]  # noqa: PLC0415
        run_batch as runner,
    )
    from vllm.entrypoints.launchers.api_server.entry import (  # type: ignore[import-not-found]  # noqa: PLC0415
        build_async_engine_client,
    )

    arguments = ["run_batch", "-i", "none", "-o", "none", "--model", model, "--served-model-name", name]
    arguments += ["--enforce-eager", "--max-num-seqs", str(SEQUENCES), "--max-model-len", str(CONTEXT_TOKENS)]
    arguments += ["--kv-cache-memory-bytes", str(KV_CACHE_BYTES), "--no-enable-prefix-caching"]
    arguments += ["--distributed-executor-backend", "uni"]
    sys.argv = arguments
    given: Any = runner.parse_args()
    runner.validate_run_batch_args(given)
    async with build_async_engine_client(given) as client:
        say({"ready": True})
        while path := (await asyncio.to_thread(sys.stdin.readline)).strip():
            given.input_file, given.output_file = path, f"{path}.answers"
            began = time.perf_counter()
            await runner.run_batch(client, given)
            seconds = time.perf_counter() - began
            answers = [json.loads(line) for line in Path(given.output_file).read_text().splitlines()]
            bodies = [answer["response"]["body"] for answer in answers]
            tokens = sum(body["usage"]["completion_tokens"] for body in bodies)
            say({"seconds": seconds, "answers": len(bodies), "tokens": tokens})


def main() -> None:
    """Serve stdin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=("generate", "run_batch"))
    parser.add_argument("model")
    parser.add_argument("name")
    given = parser.parse_args()
    if given.way == "generate":
        generate(given.model)
    else:
        asyncio.run(run_batch(given.model, given.name))


if __name__ == "__main__":
    main()
