"""Settings: read once, from the environment (``SLACKWATER_*``) and then a TOML file; an unknown name is an error.

Only ``cli`` imports this module: everything below takes its values as arguments. ``docs/settings.md`` explains every
setting; a test compares the two.
"""

import os
import tomllib
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from slackwater.domain.errors import SetupError

PREFIX: Final = "SLACKWATER_"
CONFIG_FILE: Final = "SLACKWATER_CONFIG_FILE"

NOT_SETTINGS: Final = frozenset(
    {
        "SLACKWATER_BASE_URL",  # the people's client: where the service is
        "SLACKWATER_API_KEY",  # the people's client: who asks
        "SLACKWATER_DATA_DIR",  # `up` and the client: where its data and profile are
        "SLACKWATER_CONFIG_FILE",  # where the TOML file is
    }
)
"""Names with our prefix that are read elsewhere. ``SLACKWATER_TEST_…`` belongs to the tests."""


class Settings(BaseSettings):
    """Every setting of the server roles."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    database_url: SecretStr = Field(
        default=SecretStr("postgresql://postgres@127.0.0.1:5432/slackwater"),
        description="PostgreSQL, as a `postgresql://` URL.",
    )
    database_hot_connections: int = Field(
        default=10, ge=1, description="Connections that one process may open for what every request and batch needs."
    )
    database_other_connections: int = Field(
        default=5,
        ge=1,
        description="Connections that it may open beside them: lists, cancels, deletions, operators' commands.",
    )

    database_prepared_statements: bool = Field(
        default=True, description="Prepare hot statements; turn off behind a pooler that knows no prepared statements."
    )

    store_url: str = Field(
        default="file:///var/lib/slackwater/objects",
        description="Object store: `file:///folder` or `s3://bucket/prefix`.",
    )
    store_endpoint: str | None = Field(default=None, description="Endpoint of an S3-compatible store; AWS when unset.")
    store_region: str = Field(default="us-east-1", description="Region of the S3 store.")
    store_access_key_id: str | None = Field(default=None, description="Access key of the S3 store.")
    store_secret_access_key: SecretStr | None = Field(default=None, description="Secret key of the S3 store.")
    store_checksums: Literal["when_required", "when_supported"] = Field(
        default="when_required",
        description="boto3's `request_checksum_calculation`; many S3-compatible stores need `when_required`.",
    )

    api_host: str = Field(default="127.0.0.1", description="Address the HTTP API listens on.")
    api_port: int = Field(default=8000, ge=0, le=65535, description="Port of the HTTP API.")
    probe_host: str = Field(
        default="127.0.0.1", description="Address of the probe port (`/healthz`, `/readyz`, `/metrics`)."
    )
    probe_port: int = Field(default=9464, ge=0, le=65535, description="Probe port of a role; 0 picks a free one.")

    engine: Literal["vllm", "url", "simulated"] = Field(
        default="vllm",
        description="What a worker runs: a vLLM child, a server it attaches to, or the simulated engine.",
    )
    engine_url: str | None = Field(default=None, description="Base URL of the server for `engine = url`.")
    engine_api_key: SecretStr | None = Field(default=None, description="API key of that server, if it has one.")
    engine_model: str | None = Field(default=None, description="Model to serve: a folder or a hub name.")
    engine_served_name: str | None = Field(
        default=None, description="Name customers use for it; the model's own when unset."
    )
    engine_environment: Path | None = Field(
        default=None,
        description="Folder of the engine's own Python environment; `engine` in the data folder when unset.",
    )
    engine_log: Path | None = Field(default=None, description="File that captures the engine's own log.")
    engine_args: list[str] = Field(
        default_factory=list, description="Further arguments to the vLLM server, as a JSON list."
    )
    max_num_seqs: int = Field(default=256, ge=1, description="Requests the engine runs at once.")
    gpu_memory_utilization: float = Field(
        default=0.90, gt=0, le=1, description="Share of GPU memory the engine may take."
    )
    max_num_batched_tokens: int | None = Field(
        default=None, ge=1, description="Tokens of one engine step; the engine's default when unset."
    )
    max_model_len: int | None = Field(
        default=None, ge=1, description="Longest prompt plus output; the model's own when unset."
    )
    kv_cache_memory_bytes: int | None = Field(default=None, ge=1, description="Size of the KV cache on a CPU engine.")

    simulated_seconds_per_token: float = Field(
        default=0.0, ge=0, description="Time the simulated engine takes for each output token; 0 answers at once."
    )
    models_dir: Path | None = Field(
        default=None,
        description="Folder of models that `slackwater engine install` makes; in the data folder when unset.",
    )

    worker_id: str | None = Field(default=None, description="Name of a worker; host name and port when unset.")
    max_in_flight: int | None = Field(
        default=None,
        ge=1,
        description="Requests a worker keeps at the engine; `max_num_seqs` and a small surplus when unset.",
    )
    request_timeout_seconds: float = Field(
        default=1800.0, gt=0, description="Longest wait for one answer of the engine."
    )
    request_attempts: int = Field(default=5, ge=1, description="Tries of a line that fails for reasons of its own.")
    drain_grace_seconds: float = Field(
        default=30.0, ge=0, description="How long a worker that is told to stop finishes what is at its engine."
    )
    checkpoint_seconds: float = Field(
        default=30.0, gt=0, description="How often a worker keeps what is finished of the chunks it runs."
    )
    engine_outage_seconds: float = Field(
        default=120.0, gt=0, description="How long a worker whose engine is away keeps its chunks."
    )
    engine_stall_seconds: float = Field(
        default=120.0,
        gt=0,
        description="How long an engine may have requests and neither answer nor write a token before it counts as"
        " hanging.",
    )

    max_input_lines: int = Field(
        default=1_000_000, ge=1, description="Lines of one batch; OpenAI's own limit is 50000."
    )
    max_file_bytes: int = Field(
        default=8 << 30, ge=1, description="Bytes of one upload; OpenAI's own limit for a batch is 200 MB."
    )
    allow_mixed_models: bool = Field(default=False, description="Let the lines of one batch name different models.")
    media_hosts: list[str] = Field(
        default_factory=list, description="Hosts from which request bodies may name media; none by default."
    )
    require_jsonl_suffix: bool = Field(
        default=False, description="Refuse batch uploads whose file name does not end in `.jsonl`."
    )
    file_expiry_days: float = Field(
        default=30.0, gt=0, description="Days a batch input or a result file is kept by default."
    )
    scratch_dir: Path | None = Field(
        default=None, description="Folder for planning's scratch files; the system's when unset."
    )
    stop_grace_seconds: float = Field(
        default=60.0, ge=0, description="How long workers may take to close a cancelled or expired batch."
    )
    keep_chunks_days: float = Field(
        default=3.0, ge=0, description="Days that chunk rows and parts of an ended batch are kept."
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto` is console on a terminal, else JSON."
    )

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, url: SecretStr) -> SecretStr:
        """Only PostgreSQL keeps the promises: one dialect, SKIP LOCKED, transactions."""
        if not url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("must be a postgresql:// URL")
        return url

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the base class fixes the signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then the TOML file."""
        path = os.environ.get(CONFIG_FILE)
        if path is None:
            return init_settings, env_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=path)


def load(**overrides: object) -> Settings:
    """Read the settings; ``overrides`` (from the command line) win. Raises SetupError that names each wrong setting."""
    known = {PREFIX + name.upper() for name in Settings.model_fields} | NOT_SETTINGS
    ours = (name for name in os.environ if name.startswith(PREFIX) and not name.startswith("SLACKWATER_TEST_"))
    strange = sorted(set(ours) - known)
    if strange:
        raise SetupError(f"unknown settings in the environment: {', '.join(strange)}; docs/settings.md lists them all")
    config_file = os.environ.get(CONFIG_FILE)
    if config_file is not None and not Path(config_file).is_file():
        raise SetupError(f"{CONFIG_FILE} names no file: {config_file}")
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        # The value itself may be a secret: only its name and what is wrong with it are told.
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise SetupError(f"wrong settings: {wrong}") from None
    except SettingsError as error:
        raise SetupError(f"wrong settings: {error}; lists are given as JSON") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SetupError(f"cannot read the settings file {config_file}: {error}") from None
