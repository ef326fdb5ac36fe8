"""Pushing to the Hugging Face Hub and pulling from it, against a local server that speaks its protocol."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from fake_hub import TOKEN
from huggingface_hub import constants, hf_api
from huggingface_hub.utils import _http

from gan_core.errors import HubBusy, HubError
from gan_core.exports import hub as door
from gan_core.networks import generators
from gan_core.networks.drawing import draw

# The library's own call, which its HTTP client doesn't like any more.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(hub, monkeypatch):
    """With the token in its usual place; pauses between attempts cost no time."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)
    return hub


FILES = {"README.md": b"# hello\n", "generator.safetensors": bytes(range(256)) * 8, "config.json": b"{}"}


def test_a_push_is_one_commit_and_makes_the_repository(hub):
    pushed = door.commit("ada/digits", FILES, "after iteration 10")
    assert hub.files("ada/digits") == FILES
    assert hub.repos["ada/digits"].messages == ["after iteration 10"]
    assert pushed.url.startswith(f"{hub.url}/ada/digits/commit/")
    door.commit("ada/digits", {**FILES, "config.json": b"[]"}, "after iteration 20")
    assert hub.repos["ada/digits"].messages == ["after iteration 10", "after iteration 20"]
    assert hub.files("ada/digits")["config.json"] == b"[]"


def test_what_was_pushed_comes_back(hub, tmp_path):
    door.commit("ada/digits", FILES, "x")
    path = door.fetch("ada/digits", "generator.safetensors", tmp_path / "cache")
    assert path.read_bytes() == FILES["generator.safetensors"]
    with pytest.raises(HubError, match=r"has 2,048 bytes; at most 2,000 are fetched"):
        door.fetch("ada/digits", "generator.safetensors", tmp_path / "other", largest=2_000)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_hub_is_asked_again(hub, status):
    hub.fail = {"preupload": [status, status]}
    door.commit("ada/digits", FILES, "x")
    assert hub.files("ada/digits") == FILES
    assert sum("preupload" in line for line in hub.asked) == 3


def test_a_hub_that_stays_busy_is_left_for_later(hub):
    hub.fail = {"preupload": [503] * 50}
    with pytest.raises(HubBusy, match=r"busy \(HTTP 503\).*try again later"):
        door.commit("ada/digits", FILES, "x")


def test_a_hub_that_is_away_is_left_for_later(hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubBusy, match="doesn't answer"):
        door.commit("ada/digits", FILES, "x")


@pytest.mark.parametrize(
    ("where", "status", "sentence"),
    [
        ("create", 401, r"doesn't know this token \(401\)\. Make a new one with write access"),
        ("preupload", 403, r"doesn't let this token write to ada/digits \(403\)\. Give the token write access"),
        ("preupload", 404, r"has no ada/digits that this token may see \(404\)\. Check the name"),
        ("lfs", 403, r"doesn't let this token write"),
        ("commit", 400, r"refused ada/digits \(400\)"),
    ],
)
def test_a_no_is_a_sentence_with_the_next_step_and_without_the_token(hub, where, status, sentence, caplog):
    hub.fail = {where: [status] * 20}
    with pytest.raises(HubError, match=sentence) as caught:
        door.commit("ada/digits", FILES, "x")
    assert not isinstance(caught.value, HubBusy)
    assert TOKEN not in str(caught.value) + caplog.text


def test_without_a_token_it_says_where_one_is_looked_for(hub, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(hf_api, "get_token", lambda: None)
    with pytest.raises(HubError, match="`hf auth login` on this machine, or set HF_TOKEN"):
        door.check("")


@pytest.mark.parametrize("repo", ["digits", "a/b/c", "../x", "a/..", "", "ada/dig its", "ada/-"])
def test_what_is_no_repository_is_refused_before_anybody_is_asked(hub, repo):
    with pytest.raises(HubError, match="Write OWNER/REPO"):
        door.commit(repo, FILES, "x")
    assert hub.asked == []


def test_the_check_tells_who_i_am_and_whether_i_may_write(hub):
    *_, me, writes, same = door.check("school/digits")
    assert me == "the token is that of ada (organisations: school)"
    assert writes == "it may write to school/digits"
    assert same == "what was written comes back unchanged"
    assert list(hub.files("school/digits")) == [".classgan-check"]
    with pytest.raises(HubError, match=r"doesn't let this token write to elsewhere/digits \(403\)"):
        door.check("elsewhere/digits")


# The commands


def test_in_a_process_of_its_own_the_command_finds_all_of_the_library(hub, tmp_path):
    """The library loads its parts when they are named; here, other tests have named some before."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deployments.cli", "push", "--check", "--repo", "school/digits"],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "it may write to school/digits" in done.stdout


@pytest.fixture
def trained(classroom, tiny, hub, monkeypatch, tmp_path):
    """A training that was pushed to its folder; `classgan` looks into its database."""
    from gan_core.settings import settings
    from tasks import push as pushing
    from tasks.background.push_to_hub import HubPushes

    for name, value in {
        "DATABASE_URL": classroom.url,
        "OUTPUTS": tmp_path / "outputs",
        "HOME": tmp_path / "home",
    }.items():
        monkeypatch.setenv(f"CLASSGAN_{name}", str(value))
    settings.cache_clear()
    with classroom.working(1):
        training = classroom.train(tiny.changed(data="digits", hub_licence="mit"))
    pushing.push.fn(training.snapshot(), HubPushes(), is_last=True)
    return training


def test_a_training_is_pushed_with_its_card_and_draws_the_same_images_elsewhere(trained, hub, tmp_path, connection):
    from deployments.cli.results.generators import generate_images, push_training

    connection.execute("UPDATE classgan.students SET display_name = 'Ada [L](http://x)', named = true")
    push_training("test", "ada/digits")
    files = hub.files("ada/digits")
    assert set(files) == {"README.md", "config.json", "discriminator.safetensors", "generator.safetensors"}
    card = files["README.md"].decode()
    assert card.startswith("---\nlicense: mit\nlibrary_name: classgan\n")
    for told in (
        "after iteration 3, with 144 images seen",
        "on 1 machine of 1 student",
        "classgan generate hub:ada/digits",
    ):
        assert told in card
    assert r"Ada \[L\]\(http\://x\)" in card  # a student's words, and no link
    assert json.loads(files["config.json"])["plan"]["latent_dim"] == 4
    generate_images("hub:ada/digits", 4, tmp_path / "theirs.png", seed=1)
    generate_images("test", 4, tmp_path / "ours.png", seed=1)
    assert (tmp_path / "theirs.png").read_bytes() == (tmp_path / "ours.png").read_bytes()


def test_the_cards_snippet_draws_the_same_images_with_pytorch_alone(trained, hub, tmp_path, monkeypatch):
    from deployments.cli.results.generators import push_training

    push_training("test", "ada/digits")
    for name, content in hub.files("ada/digits").items():
        (tmp_path / name).write_bytes(content)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "pip install 'classgan" not in card  # which no index has
    monkeypatch.chdir(tmp_path)
    made: dict = {}
    exec(re.search(r"```python\n(.*?)```", card, re.DOTALL)[1], made)
    theirs = generators.load(tmp_path / "generator.safetensors")
    noise = torch.randn(64, theirs.plan.latent_dim, 1, 1)
    ours = draw(theirs.plan, theirs.average, noise, theirs.statistics)
    with torch.no_grad():
        assert torch.allclose(made["generator"](noise), ours, atol=1e-6)
    assert made["images"].shape == ours.shape
    assert ours.std() > 1e-5


def test_nobody_is_named_who_did_not_ask_for_it(trained, hub):
    from deployments.cli.results.generators import push_training

    push_training("test", "ada/digits")
    assert "Nobody asked to be named." in hub.files("ada/digits")["README.md"].decode()


def test_a_push_without_a_repository_says_how_to_name_one(trained):
    from deployments.cli.results.generators import push_training

    with pytest.raises(HubError, match="classgan push test --repo OWNER/REPO"):
        push_training("test", "")


def test_a_strangers_file_that_is_no_generator_draws_nothing(trained, hub, tmp_path):
    from deployments.cli.results.generators import generate_images
    from gan_core.errors import DataError

    door.commit("ada/evil", {"generator.safetensors": b"\x80\x04evil"}, "x")
    with pytest.raises(DataError, match="can't be read as a generator"):
        generate_images("hub:ada/evil", 1, tmp_path / "x.png", seed=0)
    with pytest.raises(HubError, match=r"has no generator.safetensors in ada/digits2 .*\(404\)"):
        generate_images("hub:ada/digits2", 1, tmp_path / "x.png", seed=0)
