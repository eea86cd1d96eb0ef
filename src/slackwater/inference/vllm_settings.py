"""How vLLM's server is started: our settings under the names that vLLM gives them, its arguments, its environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CPU_KV_CACHE_BYTES: Final = 512 * 1024 * 1024
"""11,600 tokens of the demo model in float32, twice as many in bf16. Unset, vLLM would take nearly all memory."""
_CPU_BLOCK_TOKENS: Final = 32
"""The least that vLLM's attention on a CPU takes."""
_FEW_CORES: Final = 2
"""So few that a core kept free for the service would be half of what the engine has."""
_ALLOWED: Final = frozenset(
    {"HOME", "LANG", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "REQUESTS_CA_BUNDLE", "TMPDIR", "TZ", "USER"}
)
_ALLOWED_PREFIXES: Final = (
    *("CUDA_", "FLASHINFER_", "GOMP_", "HF_", "KMP_", "LC_", "MKL_", "NCCL_", "NVIDIA_", "OMP_", "OPENBLAS_"),
    *("PYTORCH_", "SSL_", "TORCH", "TRITON_", "VLLM_", "XDG_"),
)
_ALLOWED_SUFFIXES: Final = ("_proxy", "_PROXY")
_NO_TELEMETRY: Final = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmSettings:
    """What to serve and how; None leaves the choice to vLLM unless said otherwise."""

    model: str
    """A folder, or a name on the model hub."""
    served_model_names: tuple[str, ...]
    """The names it answers to, the first of which is in its replies."""
    max_num_seqs: int = 256
    """Requests that run at once."""
    gpu_memory_utilization: float = 0.90
    """Share of a GPU's memory that vLLM may take; unused on a CPU."""
    max_num_batched_tokens: int | None = None
    """Tokens of one step of the engine."""
    max_model_len: int | None = None
    """Longest prompt plus output, in tokens."""
    kv_cache_memory_bytes: int | None = None
    """None on a CPU means 512 MiB."""
    extra_args: tuple[str, ...] = ()
    """More arguments of vLLM's server; they win over ours."""
    on_cpu: bool
    """Whether there is no GPU."""
    cpu_has_bf16: bool = True
    """Whether a CPU multiplies bf16 in hardware (AVX512_BF16, AMX); else a CPU engine runs in float32."""
    cpu_threads: int | None = None
    """Threads of a CPU engine; None takes all of two cores, and all but one of more."""
    api_key: str | None = None
    """Random secret that keeps other users of the machine off the engine's port."""

    def arguments(self, port: int) -> list[str]:
        """Return what follows the interpreter on the command line."""
        arguments = ["-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
        arguments += ["--model", self.model, "--served-model-name", *self.served_model_names]
        arguments += ["--max-num-seqs", str(self.max_num_seqs), "--scheduling-policy", "priority"]
        # Neither prompts nor a line for each of a million requests.
        arguments += ["--no-enable-log-requests", "--disable-uvicorn-access-log"]
        if self.on_cpu:
            # Compiling takes minutes and needs a C++ compiler; on small models it gains little.
            arguments += ["--enforce-eager", "--distributed-executor-backend", "uni"]
            # vLLM's 128 tokens a block on a CPU are more than most shared prefixes have: nothing of them was reused.
            arguments += ["--block-size", str(_CPU_BLOCK_TOKENS)]
            if not self.cpu_has_bf16:
                # Without instructions for it, bf16 multiplies at 2 to 4 GFLOP/s where float32 does 5 to 10.
                arguments += ["--dtype", "float32"]
        else:
            arguments += ["--gpu-memory-utilization", str(self.gpu_memory_utilization)]
        kv_cache = self.kv_cache_memory_bytes or (_CPU_KV_CACHE_BYTES if self.on_cpu else None)
        for name, value in (
            ("--max-num-batched-tokens", self.max_num_batched_tokens),
            ("--max-model-len", self.max_model_len),
            ("--kv-cache-memory-bytes", kv_cache),
        ):
            if value is not None:
                arguments += [name, str(value)]
        return [*arguments, *self.extra_args]

    def environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """Return the child's environment: of ours what vLLM understands, and none of our secrets.

        The hub's token goes along only where the model comes from the hub.
        """
        local = Path(self.model).is_dir()
        kept = {name: value for name, value in ours.items() if _is_allowed(name) and not (local and name == "HF_TOKEN")}
        chosen, defaults = dict(_NO_TELEMETRY), dict[str, str]()
        if local:
            chosen |= _OFFLINE
        if self.on_cpu:
            cores = len(os.sched_getaffinity(0))
            threads = self.cpu_threads or (cores if cores <= _FEW_CORES else cores - 1)
            chosen["TORCHDYNAMO_DISABLE"] = "1"
            # The model in the engine core's process, as `uni` above says; vLLM overrules that where this is not 0, and
            # a third process that imports vLLM makes half as much again of its start.
            defaults = {"OMP_NUM_THREADS": str(threads), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        if self.api_key is not None:
            # Not as an argument: everybody on the machine may read those.
            chosen["VLLM_API_KEY"] = self.api_key
        return {**defaults, **kept, **chosen}


def _is_allowed(name: str) -> bool:
    return name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES) or name.endswith(_ALLOWED_SUFFIXES)
