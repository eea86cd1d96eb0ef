"""Write a tiny chat model with random weights, for tests and benchmarks with a real engine.

Run by the engine's interpreter: ``.engine/bin/python bench/tiny_model.py FOLDER [--lora FOLDER]``. A Llama of a
third of a million parameters with a byte-level tokenizer trained on made-up text and a chat template that refuses
roles out of turn. The same seed writes the same bytes; its greedy answers are the same at any concurrency. vLLM also
serves it for embeddings (``--runner pooling --convert embed``). Needs torch, safetensors and tokenizers, and 5 s.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

import torch  # type: ignore[import-not-found]
from safetensors.torch import save_file  # type: ignore[import-not-found]
from tokenizers import (  # type: ignore[import-not-found]
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)

SEED = 20260101
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD = 128, 2, 4, 2, 32, 256
CONTEXT_TOKENS = 4096
SPREAD = 0.2
"""Standard deviation of the weights: wide enough that greedy answers differ from prompt to prompt."""
LORA_RANK = 8
PAD, START, END, BEGIN = "<|pad|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"
WORDS = (
    "the a of to and in is it for on that with as was be by at from this have or an are not queue batch model token "
    "server request answer question weather city person order price hello world please write story about summary "
    "translate english french json name age value true false null error time day year small large fast slow"
)

CHAT_TEMPLATE = """\
{%- set turn = namespace(next='user') -%}
{%- for message in messages -%}
{%- if message['role'] in ('system', 'developer') -%}
{%- if not loop.first -%}{{ raise_exception('Only the first message may be a system message') }}{%- endif -%}
{%- elif message['role'] == 'tool' -%}
{%- set turn.next = 'assistant' -%}
{%- elif message['role'] != turn.next -%}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- else -%}
{%- set turn.next = 'assistant' if turn.next == 'user' else 'user' -%}
{%- endif -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string -%}{{ message['content'] }}
{%- else -%}{%- for part in message['content'] or [] if part['type'] == 'text' -%}{{ part['text'] }}{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lora", type=Path, help="also write a LoRA adapter for the model into this folder")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    write_model(options.folder, vocabulary=write_tokenizer(options.folder, seed=options.seed), seed=options.seed)
    if options.lora is not None:
        options.lora.mkdir(parents=True, exist_ok=True)
        write_lora(options.lora, seed=options.seed + 1)


def write_tokenizer(folder: Path, *, seed: int) -> int:
    """Write the tokenizer and return the size of its vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=[PAD, START, END, BEGIN],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(random.Random(seed)), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": END,
        "bos_token": BEGIN,
        "model_max_length": CONTEXT_TOKENS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    size: int = tokenizer.get_vocab_size()
    return size


def sentences(chance: random.Random) -> Iterator[str]:
    words = WORDS.split()
    for _ in range(3000):
        yield " ".join(chance.choices(words, k=chance.randint(4, 16))).capitalize() + chance.choice(".!?")
    for _ in range(500):
        yield json.dumps({"name": chance.choice(words), "age": chance.randint(1, 99), "ok": chance.random() < 0.5})


def write_model(folder: Path, *, vocabulary: int, seed: int) -> None:
    configuration = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocabulary,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "pad_token_id": 0,
        "eos_token_id": 2,
        "bos_token_id": 3,
    }
    (folder / "config.json").write_text(json.dumps(configuration, indent=2))
    generator = torch.Generator().manual_seed(seed)
    shapes = {"model.embed_tokens": (vocabulary, HIDDEN)}
    norms = ["model.norm"]
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        norms += [f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm"]
        shapes |= {
            f"{layer}.self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{layer}.self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            f"{layer}.mlp.gate_proj": (FEED_FORWARD, HIDDEN),
            f"{layer}.mlp.up_proj": (FEED_FORWARD, HIDDEN),
            f"{layer}.mlp.down_proj": (HIDDEN, FEED_FORWARD),
        }
    weights = {f"{name}.weight": torch.randn(shape, generator=generator) * SPREAD for name, shape in shapes.items()}
    weights |= {f"{name}.weight": torch.ones(HIDDEN) for name in norms}
    save_file(
        {name: weight.to(torch.bfloat16) for name, weight in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def write_lora(folder: Path, *, seed: int) -> None:
    """Write an adapter that changes every greedy answer."""
    generator = torch.Generator().manual_seed(seed)
    outputs = {"q_proj": HEADS * HEAD_DIM, "v_proj": KV_HEADS * HEAD_DIM}
    weights = {}
    for number in range(LAYERS):
        for module, rows in outputs.items():
            name = f"base_model.model.model.layers.{number}.self_attn.{module}"
            weights[f"{name}.lora_A.weight"] = torch.randn((LORA_RANK, HIDDEN), generator=generator)
            weights[f"{name}.lora_B.weight"] = torch.randn((rows, LORA_RANK), generator=generator)
    save_file(weights, folder / "adapter_model.safetensors")
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": LORA_RANK,
        "lora_alpha": 2 * LORA_RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(outputs),
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2))


if __name__ == "__main__":
    main()
