from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.cli.profile import Profile, Target, data_dir, find_target, read_profile, write_profile
from slackwater.domain.errors import SetupError

UP = Profile(base_url="http://127.0.0.1:8000/v1", api_key="sk-up", tenant="me")


def found(
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    environment: dict[str, str] | None = None,
    profile: Profile | None = UP,
) -> Target:
    return find_target(base_url=base_url, api_key=api_key, environment=environment or {}, profile=lambda: profile)


def test_options_win_over_the_environment_and_that_over_the_profile() -> None:
    environment = {"SLACKWATER_BASE_URL": "http://env/v1", "SLACKWATER_API_KEY": "sk-env"}
    assert found(base_url="http://o/v1", api_key="sk-o", environment=environment) == Target(
        base_url="http://o/v1", api_key="sk-o"
    )
    assert found(environment=environment) == Target(base_url="http://env/v1", api_key="sk-env")
    assert found() == Target(base_url=UP.base_url, api_key="sk-up")


def test_a_key_alone_goes_to_the_profiles_service() -> None:
    assert found(api_key="sk-o") == Target(base_url=UP.base_url, api_key="sk-o")


def test_the_profiles_key_is_never_sent_elsewhere() -> None:
    assert found(base_url="http://elsewhere/v1").api_key is None
    assert found(environment={"SLACKWATER_BASE_URL": "http://elsewhere/v1"}).api_key is None


def test_the_profiles_service_named_another_way_still_gets_its_key() -> None:
    assert found(base_url="http://127.0.0.1:8000/").api_key == "sk-up"


def test_a_broken_profile_does_not_matter_where_it_is_not_needed() -> None:
    def broken() -> Profile | None:
        raise SetupError("broken")

    target = find_target(base_url="http://o/v1", api_key="sk", environment={}, profile=broken)
    assert target.api_key == "sk"


def test_without_any_of_them_it_says_what_to_do() -> None:
    with pytest.raises(SetupError, match="slackwater up"):
        found(profile=None)


def test_other_products_variables_are_not_read() -> None:
    environment = {"OPENAI_BASE_URL": "http://elsewhere/v1", "OPENAI_API_KEY": "sk-other"}
    assert found(environment=environment).api_key == "sk-up"


def test_the_data_directory_is_in_the_home_unless_it_is_named() -> None:
    assert data_dir({}, Path("/home/me")) == Path("/home/me/.local/share/slackwater")
    assert data_dir({"SLACKWATER_DATA_DIR": "/data"}, Path("/home/me")) == Path("/data")


@given(tenant=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=20))
def test_a_profile_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, tenant: str) -> None:
    path = tmp_path_factory.mktemp("profile") / "profile.toml"
    profile = Profile(base_url="http://127.0.0.1:1/v1", api_key="sk-1", tenant=tenant)
    write_profile(path, profile)
    assert read_profile(path) == profile


def test_a_profile_is_for_its_owner_alone_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text("old")
    path.chmod(0o644)
    write_profile(path, UP)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["profile.toml"]


def test_no_profile_is_none(tmp_path: Path) -> None:
    assert read_profile(tmp_path / "profile.toml") is None


@pytest.mark.parametrize("text", ["not toml", 'base_url = "http://h"', "base_url = 5\napi_key = "])
def test_a_profile_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(text)
    with pytest.raises(SetupError, match=r"profile\.toml"):
        read_profile(path)
