"""Pushing to the Hugging Face Hub and pulling from it, against a local server that speaks its protocol."""

import pytest
from fake_hub import TOKEN, fake_hub
from huggingface_hub import constants, hf_api
from huggingface_hub.utils import _http

from gan_core.errors import HubBusy, HubError
from gan_core.exports import hub as door

# The library's own call, which its HTTP client doesn't like any more.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that the library speaks to, with the token in its usual place; pauses between attempts cost no time."""
    with fake_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)
        yield hub


FILES = {"README.md": b"# hello\n", "generator.safetensors": bytes(range(256)) * 8, "config.json": b"{}"}


def test_a_push_is_one_commit_and_makes_the_repository(hub):
    pushed = door.commit("ada/digits", FILES, "after iteration 10")
    assert hub.files("ada/digits") == FILES
    assert hub.messages == ["after iteration 10"]
    assert pushed.url.startswith(f"{hub.url}/ada/digits/commit/")
    door.commit("ada/digits", {**FILES, "config.json": b"[]"}, "after iteration 20")
    assert len(hub.repos["ada/digits"]) == 3  # empty, and two commits
    assert hub.files("ada/digits")["config.json"] == b"[]"


def test_what_was_pushed_comes_back(hub, tmp_path):
    door.commit("ada/digits", FILES, "x")
    path = door.fetch("ada/digits", "generator.safetensors", tmp_path / "cache")
    assert path.read_bytes() == FILES["generator.safetensors"]
    with pytest.raises(HubError, match=r"has 2,048 bytes; more than 2,000 are not fetched"):
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
