"""What `slackwater up` refuses before it starts anything."""

from pathlib import Path

import pytest

from slackwater.cli.up_options import start_up
from slackwater.domain.errors import SetupError


@pytest.mark.parametrize(
    "engine_url",
    ["notaurl", "ftp://host/v1", "http://", "http://user:secret@host:1", "http://host:port", "http://host/?key=secret"],
)
def test_an_engines_url_that_is_none_is_one_error_that_repeats_no_secret(engine_url: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="must look like http://host:8000") as refused:
        start_up(
            data_dir=tmp_path,
            host=None,
            port=None,
            engine_url=engine_url,
            engine_api_key=None,
            model=None,
            served_name=None,
            aliases=(),
            workers=1,
            simulated=False,
        )

    assert "secret" not in str(refused.value)
    assert not any(tmp_path.iterdir())
