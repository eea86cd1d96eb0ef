"""docs/compatibility.md and the application name the same paths."""

import re
from pathlib import Path

from fastapi.routing import APIRoute

from slackwater.api import batches, files, health, models
from slackwater.domain.endpoints import ENDPOINTS

PAGE = (Path(__file__).parents[3] / "docs/compatibility.md").read_text()


def without_names(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def test_the_page_lists_what_is_served() -> None:
    rows = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| `/")]
    listed = {
        (without_names(path), method)
        for paths, methods in rows
        for path in re.findall(r"`([^`]+)`", paths)
        for method in re.findall(r"\b[A-Z]{3,}\b", methods)
    }
    routers = (files.router, batches.router, models.router, health.router)
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    served = {(without_names(route.path), method) for route in routes for method in route.methods or ()}

    assert listed == served


def test_the_page_lists_the_endpoints_of_a_batch() -> None:
    (sentence,) = re.findall(r"Batch endpoints: ([^.]*)\.", PAGE)

    assert re.findall(r"`([^`]+)`", sentence) == list(ENDPOINTS)
