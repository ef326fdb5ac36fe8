"""An instructor who only knows the Prefect UI: starts a training from the form, and sees it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from poll import wait_until
from selenium import webdriver
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="needs a browser: install Debian's packages chromium and chromium-driver (or put both commands on the PATH)",
    ),
]

QUIET = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture
def browser(tmp_path) -> Iterator[WebDriver]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1300,1400",
        f"--user-data-dir={tmp_path / 'profile'}",
        *QUIET,
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def find(browser: WebDriver, xpath: str):
    """The first element of this kind, as soon as the page shows it."""
    return wait_until(
        lambda: next(iter(browser.find_elements(By.XPATH, xpath)), None), 120, f"{xpath} on {browser.current_url}"
    )


def fill(browser: WebDriver, label: str, value: str) -> None:
    """Type it as often as the page needs: one that is still drawing itself may take a field away in the middle."""
    path = f"//label[starts-with(normalize-space(.), '{label} ')]/following::*[self::input or self::textarea][1]"

    find(browser, path)  # the page may still be loading

    def typed() -> bool:
        with suppress(StaleElementReferenceException):
            field = find(browser, path)
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", field)
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(value)
            return find(browser, path).get_attribute("value") == value
        return False

    wait_until(typed, 30, f"{label} = {value}")


def submit(browser: WebDriver, is_sent: Callable[[], bool]) -> None:
    """Press the button; again if the server was too busy to answer, in which case the page says so and stays."""

    def pressed() -> bool:
        for button in browser.find_elements(By.XPATH, "//button[normalize-space(.)='Submit']"):
            with suppress(StaleElementReferenceException, ElementClickInterceptedException):
                button.click()
        with suppress(AssertionError):
            return wait_until(is_sent, 20, "the run")
        return False

    wait_until(pressed, 120, f"the run that {browser.current_url} asks for")


def test_a_training_is_started_from_the_form_and_its_samples_are_seen(school, browser, tmp_path):
    deployment = school.stack._api("GET", "/deployments/name/train/train")
    browser.get(f"{school.stack.ui}/deployments/deployment/{deployment['id']}/run")
    fill(browser, "name", "from-the-form")
    for label, value in {
        "Generator Width": "8",
        "Batch Size": "16",
        "Images Per Unit": "64",
        "Quorum": "192",
        "Iterations": "4",
        "Sample Interval": "1",
        "Push Interval": "1",
    }.items():
        fill(browser, label, value)

    def is_sent() -> bool:
        runs = school.stack._api("POST", "/flow_runs/filter", {"deployments": {"id": {"any_": [deployment["id"]]}}})
        return any(run["parameters"].get("name") == "from-the-form" for run in runs)

    submit(browser, is_sent)
    school.await_success("from-the-form")
    plan = school.ask("SELECT plan FROM classgan.trainings WHERE name = 'from-the-form'")[0][0]
    assert {k: plan[k] for k in ("generator_width", "batch_size", "images_per_unit", "quorum", "iterations")} == {
        "generator_width": 8,
        "batch_size": 16,
        "images_per_unit": 64,
        "quorum": 192,
        "iterations": 4,
    }

    # If the server was slow to answer, the form was sent twice, and the second run stood by.
    run, *_ = school.stack._api("POST", "/flow_runs/filter", {"flow_runs": {"name": {"any_": ["train from-the-form"]}}})
    wait_until(lambda: school.stack.run_state(run["id"])[0] == "Completed", 120, "the run's end")

    def tasks() -> set[str]:
        found = school.stack._api(
            "POST", "/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}, "limit": 100}
        )
        return {t["name"] for t in found if t["state_type"] == "COMPLETED"}

    story = {f"{verb} it {n}" for n in range(4) for verb in ("create-units", "await-gradients", "aggregate")}
    story |= {f"{verb} it {n}" for n in range(1, 5) for verb in ("sample", "push")}
    wait_until(lambda: tasks() >= story, 120, "five tasks an iteration")
    browser.get(f"{school.stack.ui}/runs/flow-run/{run['id']}")
    find(browser, "//*[contains(text(), 'await-gradients it 3')]")
    browser.save_screenshot(str(tmp_path / "run.png"))

    (artifact,) = school.stack._api(
        "POST", "/artifacts/latest/filter", {"artifacts": {"key": {"any_": ["samples-from-the-form"]}}}
    )
    browser.get(f"{school.stack.ui}/artifacts/artifact/{artifact['latest_id']}")
    picture = find(browser, "//img[@alt='samples']")
    wait_until(lambda: picture.get_property("naturalWidth"), 90, "the sample grid's pixels")
    browser.save_screenshot(str(tmp_path / "artifact.png"))
    assert picture.get_property("naturalWidth") >= 500
