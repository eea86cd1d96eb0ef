"""What vLLM's server is started with."""

import pytest

from slackwater.inference.vllm_settings import VllmSettings

OURS = {
    "PATH": "/bin",
    "SLACKWATER_DATABASE_URL": "postgresql://u:secret@h/d",
    "AWS_SECRET_ACCESS_KEY": "s",
    "LC_ALL": "C",
}


def settings(*, on_cpu: bool, has_bf16: bool = True) -> VllmSettings:
    return VllmSettings(model="org/model", served_model_names=("m",), on_cpu=on_cpu, cpu_has_bf16=has_bf16)


def test_the_engine_gets_none_of_our_secrets() -> None:
    environment = settings(on_cpu=False).environment(OURS)

    assert "secret" not in str(environment)
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert {"PATH": "/bin", "LC_ALL": "C"}.items() <= environment.items()


def test_only_a_cpu_engine_has_its_model_in_the_cores_process_unless_told_otherwise() -> None:
    apart = "VLLM_ENABLE_V1_MULTIPROCESSING"

    assert settings(on_cpu=True).environment(OURS)[apart] == "0"
    assert settings(on_cpu=True).environment(OURS | {apart: "1"})[apart] == "1"
    assert apart not in settings(on_cpu=False).environment(OURS)


@pytest.mark.parametrize(
    ("on_cpu", "has_bf16", "float32"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_cpu_without_bf16_calculates_in_float32(*, on_cpu: bool, has_bf16: bool, float32: bool) -> None:
    arguments = settings(on_cpu=on_cpu, has_bf16=has_bf16).arguments(8000)

    assert ("float32" in arguments) is float32
    assert ("--gpu-memory-utilization" in arguments) is not on_cpu
