"""The suite's processes: whatever is dear is made in one of them alone."""

import pytest

from tests.grouping import group_of


@pytest.mark.parametrize("module", [None, "test_real_engine"])
def test_all_tests_on_a_real_engine_run_in_one_process(module: str | None) -> None:
    fixtures = ["vllm", "engine_python", "seaweedfs"]

    assert group_of("test_it_answers", fixtures, module=module) == "engine"


def test_the_tests_of_a_module_stay_with_its_site() -> None:
    assert group_of("test_one", ["site"], module="test_files") == "test_files"
    assert group_of("test_two", ["seaweedfs"], module="test_files") == "test_files"


@pytest.mark.parametrize(
    ("name", "fixtures"), [("test_one", ["seaweedfs", "tmp_path"]), ("test_two[seaweedfs-3]", ["store"])]
)
def test_a_test_that_needs_seaweedfs_shares_it_also_where_a_parameter_asks(name: str, fixtures: list[str]) -> None:
    assert group_of(name, fixtures, module=None) == "seaweedfs"


def test_all_others_run_wherever_there_is_room() -> None:
    assert group_of("test_one[local]", ["database_url", "tmp_path"], module=None) is None
