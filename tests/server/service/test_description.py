"""The OpenAPI document of the service: valid, and complete enough that clients are made from it."""

from pathlib import Path

import pytest
from openapi_spec_validator import validate

from deployments.server.service.app import TEXTS, service_app

ROOT = Path(__file__).resolve().parents[3]
OPERATIONS = ("get", "post")


@pytest.fixture(scope="module")
def document():
    return service_app("postgresql://nowhere", inner=None).openapi()  # neither of the two is asked


def operations(document):
    for path, routes in document["paths"].items():
        for method in set(routes) & set(OPERATIONS):
            yield f"{method.upper()} {path}", routes[method]


def test_it_is_valid_openapi(document):
    validate(document)


def test_every_refusal_of_every_route_is_a_problem_of_one_form(document):
    form = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for name, operation in operations(document):
        for status in (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503):
            answer = operation["responses"][str(status)]
            assert (answer["content"], answer["description"]) == (form, TEXTS[status]), (name, status)
    assert document["components"]["schemas"]["Problem"]["properties"]["errors"]["items"] == {
        "$ref": "#/components/schemas/Fault"
    }


def test_it_says_how_to_log_in(document):
    (login,) = document["components"]["securitySchemes"].items()
    assert login[1]["scheme"] == "basic"
    assert document["security"] == [{login[0]: []}]
    for name, operation in operations(document):
        assert "security" not in operation, name  # all need the same login


def test_each_status_that_the_page_explains_is_documented_and_the_other_way_round(document):
    page = (ROOT / "docs/service.md").read_text(encoding="utf-8").partition("## When something is refused")[2]
    explained = {int(line.split("|")[1]) for line in page.splitlines() if line.startswith(("| 4", "| 5"))}
    assert explained == set(TEXTS)
