import pytest
from typer.testing import CliRunner

from slackwater.cli.main import app


@pytest.mark.parametrize(
    "arguments",
    [
        ("tenant", "create", "acme", "--weight", "inf"),
        ("tenant", "create", "acme", "--weight", "nan"),
        ("tenant", "create", "acme", "--weight", "0"),
        ("tenant", "create", "acme", "--max-lines", "0"),
        ("key", "create", "acme", "--days", "100000000"),
        ("key", "create", "acme", "--days", "inf"),
        ("key", "create", "acme", "--days", "0"),
        ("model", "add", "m", "--max-model-len", "0"),
        ("model", "add", "m", "--endpoint", "/v1/foo"),
    ],
)
def test_a_number_out_of_range_is_refused_by_the_options_name(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)

    assert result.exit_code == 2
    assert arguments[3] in result.output


@pytest.mark.parametrize("name", ["", " ", "x" * 101])
def test_a_tenants_name_that_nobody_could_use_is_refused(name: str) -> None:
    result = CliRunner().invoke(app, ["tenant", "create", name], catch_exceptions=False)

    assert result.exit_code == 2
    assert "1 to 100 characters" in result.output
