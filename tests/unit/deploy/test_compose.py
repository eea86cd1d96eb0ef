"""docker-compose.yml fits the specification, the settings, the images, Prometheus and the example of .env."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyOptions

from slackwater.config import Settings, load
from tests.deployment import COMPOSE, ROOT, SECRET, compose, example_environment, services, variables

_OURS = {"migrate": "migrate", "api": "api", "control": "control", "worker": "work"}
_ENDS_BY_ITSELF = "migrate"
_PINNED = re.compile(r"[\w./-]+:v?\d[\w.-]*")


def _environment(service: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in service.get("environment", {}).items()}


def _image_environment(service: dict[str, Any]) -> dict[str, str]:
    text = (ROOT / service["build"]["dockerfile"]).read_text()
    return dict(re.findall(r"(SLACKWATER_\w+)=(\S+)", text))


def test_it_is_a_valid_compose_file() -> None:
    PyOptions(apply_merge=True).from_yaml(yaml.safe_dump(compose())).validate()


def test_every_service_is_an_image_with_a_version_or_one_that_we_build() -> None:
    for name, service in services().items():
        assert _PINNED.fullmatch(service["image"]), name
        assert ("build" in service) == (name in _OURS)
        if name in _OURS:
            assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_our_services_run_the_roles_of_the_one_command() -> None:
    assert {name: service["command"] for name, service in services().items() if name in _OURS} == {
        name: [role] for name, role in _OURS.items()
    }


@pytest.mark.parametrize("name", _OURS)
def test_the_settings_of_a_service_are_settings_and_their_values_are_accepted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = services()[name]
    environment = _image_environment(service) | _environment(service)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)

    settings = load()

    assert settings.database_url.get_secret_value() == f"postgresql://slackwater:{SECRET}@postgres:5432/slackwater"
    assert settings.store_url == "s3://slackwater"
    assert settings.probe_host == "0.0.0.0"


def test_the_engine_of_the_worker_is_set_by_the_example_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    service = services()["worker"]
    for variable, value in (_image_environment(service) | _environment(service)).items():
        monkeypatch.setenv(variable, value)

    settings = load()

    assert (settings.engine, settings.engine_model) == ("vllm", example_environment()["SLACKWATER_ENGINE_MODEL"])
    assert (settings.max_num_seqs, settings.gpu_memory_utilization, settings.engine_args) == (256, 0.9, [])


def test_the_example_environment_names_every_variable_and_no_other() -> None:
    assert example_environment().keys() == variables().keys()


def test_defaults_are_the_same_in_the_example_environment() -> None:
    example = example_environment()

    assert {name: default for name, default in variables().items() if default is not None} == {
        name: example[name] for name, default in variables().items() if default is not None
    }


def test_secrets_come_from_the_environment_alone_and_have_no_default() -> None:
    secrets = {"POSTGRES_PASSWORD", "STORE_SECRET_ACCESS_KEY", "GRAFANA_PASSWORD"}
    example = (ROOT / ".env.example").read_text()

    assert {name for name, default in variables().items() if default is None} == secrets
    assert all(f"\n{name}=\n" in example for name in secrets)


def test_no_service_shows_a_port_to_more_than_this_machine() -> None:
    published = [port for service in services().values() for port in service.get("ports", ())]

    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_published_ports_are_those_that_the_settings_listen_on() -> None:
    defaults = Settings.model_fields

    assert services()["api"]["ports"] == [f"127.0.0.1:8000:{defaults['api_port'].default}"]


def test_what_runs_is_started_again_and_asked_whether_it_lives() -> None:
    for name, service in services().items():
        if name == _ENDS_BY_ITSELF:
            continue
        assert service["restart"] == "unless-stopped", name
        asked = "healthcheck" in service or "HEALTHCHECK" in (ROOT / service["build"]["dockerfile"]).read_text()
        assert asked, name


def test_our_services_start_after_the_schema_is_there() -> None:
    for name in _OURS.keys() - {_ENDS_BY_ITSELF}:
        depends = services()[name]["depends_on"]
        assert depends["migrate"] == {"condition": "service_completed_successfully"}, name


def test_our_services_may_do_little() -> None:
    for name in _OURS:
        service = services()[name]
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service, name


def test_customers_data_is_on_a_network_without_a_way_out() -> None:
    document = compose()

    assert document["networks"]["data"] == {"internal": True}
    for name in ("postgres", "seaweedfs", "migrate"):
        assert document["services"][name]["networks"] == ["data"], name


def test_volumes_and_mounted_files_exist() -> None:
    declared = compose()["volumes"].keys()
    mounted = {mount.split(":")[0] for service in services().values() for mount in service.get("volumes", ())}

    assert declared == {mount for mount in mounted if not mount.startswith("./")}
    assert [mount for mount in mounted if mount.startswith("./") and not (ROOT / mount).exists()] == []


def _scraped() -> Iterator[tuple[str, int]]:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    job = next(job for job in config["scrape_configs"] if job["job_name"] == "slackwater")
    for lookup in job["dns_sd_configs"]:
        for name in lookup["names"]:
            yield name, lookup["port"]


def test_prometheus_scrapes_the_probe_port_of_every_role_and_reaches_it() -> None:
    probe_port = Settings.model_fields["probe_port"].default

    assert sorted(_scraped()) == [(name, probe_port) for name in ("api", "control", "worker")]
    for name, _ in _scraped():
        assert set(services()[name]["networks"]) & set(services()["prometheus"]["networks"]), name


def test_grafana_finds_its_source_and_its_dashboard() -> None:
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"][0]
    provider = yaml.safe_load((provisioning / "dashboards" / "slackwater.yml").read_text())["providers"][0]
    grafana = services()["grafana"]

    assert source["url"] == "http://prometheus:9090"
    assert f"./deploy/grafana/dashboards:{provider['options']['path']}:ro" in grafana["volumes"]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.parent == Path(provider["options"]["path"])
    assert (ROOT / "deploy" / "grafana" / "dashboards" / home.name).is_file()


def test_no_password_stands_in_the_file() -> None:
    assert re.findall(r"(?i)(?:password|secret)\w*: (?!\$\{)\S+", COMPOSE.read_text()) == []
