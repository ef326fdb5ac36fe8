"""What the service bears: any values, large bodies, many requests at once, a database that is away."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from gated import SECRETS
from hypothesis import HealthCheck, given, settings
from poll import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_nobody_keeps_more_than_8_requests_open(service):
    """Each long poll looks at the database every second; nobody else waits for them, nor does the instructor."""
    service.submit("alan", "watched")
    are_open, kept = threading.Event(), set()

    def poll(_: int) -> None:
        tag = ""  # the first is answered at once, and so is one for which there is no place while somebody looks
        while not are_open.is_set():
            answer = service.ask_as("alan", "GET", "/trainings/watched", params={"since": tag, "wait": 5})
            tag = answer.headers.get("etag", tag)
            kept.add(answer.status_code)

    def look() -> int:
        return service.ask_as("alan", "GET", "/trainings/watched").status_code

    with ThreadPoolExecutor(8) as threads:
        polls = [threads.submit(poll, number) for number in range(8)]
        try:
            wait_until(lambda: look() == 429, 60, "all eight to be open")
            assert service.ok("instructor", "GET", "/trainings/watched")["state"] == "queued"
        finally:
            are_open.set()
    for ended in polls:
        ended.result()
    assert 304 in kept
    assert look() == 200


def test_a_body_of_2_megabytes_is_refused(service):
    for login in ("ada", "instructor"):
        assert "bytes" in service.refused(413, login, "POST", "/trainings", {"name": "x" * 2_000_000})


def test_the_description_is_complete_and_nothing_of_it_breaks_the_server(service, base):
    """schemathesis: whatever fits the OpenAPI document, and what nearly does, is answered as the document says."""
    import schemathesis  # here, because it takes a second, which nobody should wait who runs other tests
    from schemathesis import GenerationMode
    from schemathesis import checks as schemathesis_checks
    from schemathesis.specs.openapi import checks as openapi_checks

    service.submit("ada", "digits-2")
    auth = ("instructor", SECRETS["instructor"])
    schema = schemathesis.openapi.from_url(f"{service.url}/classgan/v1/openapi.json", auth=auth)
    checks = [
        schemathesis_checks.not_a_server_error,
        openapi_checks.status_code_conformance,
        openapi_checks.content_type_conformance,
        openapi_checks.response_schema_conformance,
    ]
    tried = 0
    for operation in (result.ok() for result in schema.get_all_operations()):

        @settings(
            max_examples=8, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy() | operation.as_strategy(GenerationMode.NEGATIVE))
        def call(case):
            case.call_and_validate(auth=auth, timeout=60, checks=checks)

        call()
        tried += 1
    assert tried >= 20


def test_a_database_that_is_away_is_told_with_when_to_ask_again(service, base, server):
    service.submit("ada", "waits")
    name = psycopg.conninfo.conninfo_to_dict(base)["dbname"]
    with psycopg.connect(server.replace("/template?", "/postgres?"), autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            answer = service.ask_as("ada", "GET", "/trainings/waits")
            said = service.refused(503, "ada", "POST", "/trainings/waits/cancel")
        finally:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "does not answer now. Nothing was changed" in said
    assert service.ok("ada", "GET", "/trainings/waits")["state"] == "queued"
