"""Program for the engine's interpreter: a Llama in a GGUF file becomes a plain bf16 folder that vLLM serves.

``python model_from_gguf.py FILE FOLDER``. Written for SmolLM2, whose tokenizer splits numbers into digits. transformers
reads such files too, to the same weights, in three times the time. Format: the GGUF specification of the ggml project;
the order of rows in the query and key weights is llama.cpp's, undone here.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import torch  # type: ignore[import-not-found]
from gguf import GGUFReader  # type: ignore[import-not-found]
from gguf.quants import dequantize  # type: ignore[import-not-found]
from safetensors.torch import save_file  # type: ignore[import-not-found]
from tokenizers import (  # type: ignore[import-not-found]
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
)

_CONTROL_TOKEN: Final = 3
"""llama.cpp's LLAMA_TOKEN_TYPE_CONTROL."""
_PARTS: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""GGUF's names of weights and transformers'."""


def main() -> None:
    """Convert the file named first into the folder named second, which must exist."""
    reader = GGUFReader(sys.argv[1])
    folder = Path(sys.argv[2])
    facts = {name: field.contents() for name, field in reader.fields.items()}
    write_configuration(facts, folder)
    write_tokenizer(facts, folder)
    write_weights(reader, facts, folder)


def write_configuration(facts: dict[str, Any], folder: Path) -> None:
    """Write config.json and generation_config.json."""
    tokens = {
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
    }
    heads = facts["llama.attention.head_count"]
    configuration = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.embedding_length"] // heads,
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": round(facts["llama.attention.layer_norm_rms_epsilon"], 8),
        "rope_theta": facts["llama.rope.freq_base"],
        "vocab_size": facts["llama.vocab_size"],
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        **tokens,
    }
    (folder / "config.json").write_text(json.dumps(configuration, indent=2))
    (folder / "generation_config.json").write_text(json.dumps(tokens, indent=2))


def write_tokenizer(facts: dict[str, Any], folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, with the chat template."""
    names: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={name: number for number, name in enumerate(names)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    special = [
        AddedToken(name, special=True, normalized=False)
        for name, kind in zip(names, kinds, strict=True)
        if kind == _CONTROL_TOKEN
    ]
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": names[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": names[facts["tokenizer.ggml.eos_token_id"]],
        "pad_token": names[facts["tokenizer.ggml.padding_token_id"]],
        "unk_token": names[facts["tokenizer.ggml.unknown_token_id"]],
        "model_max_length": facts["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": facts["tokenizer.chat_template"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))


def write_weights(reader: Any, facts: dict[str, Any], folder: Path) -> None:
    """Write model.safetensors."""
    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    weights = {}
    for tensor in reader.tensors:
        *block, part, _ = tensor.name.split(".")
        weight = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        if part in heads:
            rows, columns = weight.shape
            by_head = weight.reshape(heads[part], rows // heads[part] // 2, 2, columns)
            weight = by_head.swapaxes(1, 2).reshape(rows, columns)
        layer = f"model.layers.{block[1]}." if block else ""
        weights[f"{layer}{_PARTS[part]}.weight"] = weight.to(torch.bfloat16).contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
