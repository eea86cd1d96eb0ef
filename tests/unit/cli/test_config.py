import os
from pathlib import Path

import pytest

from slackwater.config import NOT_SETTINGS, PREFIX, Settings, load
from slackwater.domain.errors import SetupError


class Environment:
    """The process's environment, with no setting in it but those the test makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        for name in list(self.now()):
            monkeypatch.delenv(name)

    @staticmethod
    def now() -> dict[str, str]:
        """The names of ours that are set."""
        return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}

    def set(self, **values: str) -> dict[str, str]:
        """Set names, the prefix added, and return the environment as ``load`` gets it."""
        for name, value in values.items():
            self._monkeypatch.setenv(PREFIX + name, value)
        return self.now()


def load_in(_environment: dict[str, str], **overrides: object) -> Settings:
    """Load in the process's environment, which has just been set."""
    return load(**overrides)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    return Environment(monkeypatch)


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "slackwater.toml"
    path.write_text('api_port = 8001\nlog_level = "debug"\nengine_args = ["--seed", "1"]\n')
    return path


def test_with_nothing_said_there_is_a_default_for_everything(environment: Environment) -> None:
    settings = load_in(environment.now())

    assert settings.model_fields_set == set()
    assert settings.api_host == "127.0.0.1"


def test_a_setting_is_read_from_its_name_in_the_environment(environment: Environment) -> None:
    settings = load_in(environment.set(API_PORT="9000", ENGINE_ARGS='["--seed", "1"]', MAX_MODEL_LEN="4096"))

    assert (settings.api_port, settings.engine_args, settings.max_model_len) == (9000, ["--seed", "1"], 4096)


def test_an_unknown_name_in_the_environment_is_an_error_that_names_it(environment: Environment) -> None:
    with pytest.raises(SetupError, match=r"SLACKWATER_DATABSE_URL.*SLACKWATER_PORT"):
        load_in(environment.set(DATABSE_URL="postgresql://me:hush-hush@somewhere/site", PORT="1"))


def test_the_error_for_an_unknown_name_does_not_show_its_value(environment: Environment) -> None:
    with pytest.raises(SetupError) as error:
        load_in(environment.set(DATABSE_URL="postgresql://me:hush-hush@somewhere/site"))

    assert "hush-hush" not in str(error.value)


def test_names_that_are_read_elsewhere_are_no_unknown_settings(environment: Environment, config_file: Path) -> None:
    names = {name.removeprefix(PREFIX): "anything" for name in NOT_SETTINGS}

    settings = load_in(environment.set(**(names | {"CONFIG_FILE": str(config_file), "TEST_ANYTHING": "1"})))

    assert settings.api_port == 8001


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_PORT", "hush-hush"),
        ("API_PORT", "65536"),
        ("MAX_NUM_SEQS", "0"),
        ("GPU_MEMORY_UTILIZATION", "1.5"),
        ("ENGINE", "hush-hush"),
        ("LOG_LEVEL", "hush-hush"),
    ],
)
def test_a_wrong_value_names_the_setting_and_is_never_shown(environment: Environment, name: str, value: str) -> None:
    with pytest.raises(SetupError, match=name.lower()) as error:
        load_in(environment.set(**{name: value}))

    assert value not in str(error.value)


def test_a_list_that_is_no_json_names_the_setting_and_is_never_shown(environment: Environment) -> None:
    with pytest.raises(SetupError, match="engine_args") as error:
        load_in(environment.set(ENGINE_ARGS="--token hush-hush"))

    assert "hush-hush" not in str(error.value)


def test_every_wrong_setting_is_named_at_once(environment: Environment) -> None:
    with pytest.raises(SetupError, match=r"(?s)api_port.*max_num_seqs|max_num_seqs.*api_port"):
        load_in(environment.set(API_PORT="x", MAX_NUM_SEQS="x"))


def test_a_toml_file_is_read(environment: Environment, config_file: Path) -> None:
    settings = load_in(environment.set(CONFIG_FILE=str(config_file)))

    assert (settings.api_port, settings.log_level, settings.engine_args) == (8001, "debug", ["--seed", "1"])


def test_the_environment_wins_over_the_file(environment: Environment, config_file: Path) -> None:
    settings = load_in(environment.set(CONFIG_FILE=str(config_file), API_PORT="9000"))

    assert (settings.api_port, settings.log_level) == (9000, "debug")


def test_an_override_wins_over_all_and_none_is_no_override(environment: Environment, config_file: Path) -> None:
    settings = load_in(environment.set(CONFIG_FILE=str(config_file), API_PORT="9000"), api_port=1234, log_level=None)

    assert (settings.api_port, settings.log_level) == (1234, "debug")


def test_an_unknown_name_in_the_file_is_an_error_that_names_it(environment: Environment, tmp_path: Path) -> None:
    path = tmp_path / "slackwater.toml"
    path.write_text('databse_url = "postgresql://me:hush-hush@somewhere/site"\n')

    with pytest.raises(SetupError, match="databse_url") as error:
        load_in(environment.set(CONFIG_FILE=str(path)))

    assert "hush-hush" not in str(error.value)


def test_a_file_that_is_no_toml_is_an_error_that_names_it(environment: Environment, tmp_path: Path) -> None:
    path = tmp_path / "slackwater.toml"
    path.write_text("database_url: hush-hush\n")

    with pytest.raises(SetupError, match=r"slackwater\.toml") as error:
        load_in(environment.set(CONFIG_FILE=str(path)))

    assert "hush-hush" not in str(error.value)


def test_a_file_that_is_not_there_is_an_error_that_names_it(environment: Environment, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"nowhere\.toml"):
        load_in(environment.set(CONFIG_FILE=str(tmp_path / "nowhere.toml")))


def test_secrets_are_not_shown_with_the_settings(environment: Environment) -> None:
    settings = load_in(
        environment.set(
            DATABASE_URL="postgresql://me:hush-hush@somewhere/site",
            STORE_SECRET_ACCESS_KEY="hush-hush",
            ENGINE_API_KEY="hush-hush",
        )
    )

    assert "hush-hush" not in repr(settings)
    assert "hush-hush" not in settings.model_dump_json()
