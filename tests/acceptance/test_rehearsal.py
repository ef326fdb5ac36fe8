"""A whole day, as an instructor has it: roster, machines that come and go, faces, the class page, a push, grades."""

import csv
import io
import signal
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import streamlit as st
from campus import HOSTS
from fake_hub import TOKEN, fake_hub
from killing import kill_tree
from PIL import Image
from poll import wait_until
from streamlit.testing.v1 import AppTest

from deployments.student.invites import Invite

pytestmark = [pytest.mark.slow, pytest.mark.rehearsal, pytest.mark.timeout(900)]

ODD = [
    "O'Neil, Zoë",
    'Lovelace, "Ada"',
    "山田, 太郎",
    "لوفلايس, أدا",
    "=1+1, Mallory",
    "Hopper 🦖, Grace",
    "Née, Ångström",
]
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
REPO = "ada/faces"


def faces(path: Path, count: int = 96) -> Path:
    """Pictures in the shape of CelebA's: 178 x 218, colour, JPEG."""
    random = np.random.default_rng(7)
    with zipfile.ZipFile(path, "w") as archive:
        for n in range(count):
            shade = np.linspace(0, 255, 218, dtype=np.uint8)[:, None, None]
            pixels = (shade + random.integers(0, 255, 3, dtype=np.uint8)) * np.ones((1, 178, 1), np.uint8)
            content = io.BytesIO()
            Image.fromarray(pixels.astype(np.uint8)).save(content, "JPEG")
            archive.writestr(f"img_align_celeba/{n + 1:06}.jpg", content.getvalue())
    return path


def roster(path: Path) -> Path:
    """Thirty people as Canvas exports them."""
    names = ODD + [f"Family{n}, Given{n}" for n in range(30 - len(ODD))]
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(CANVAS)
        writer.writerow(["    Points Possible", "", "", "", ""])
        writer.writerows([name, f"{n:05}", f"u{n}", f"student{n}@example.edu", "A, B"] for n, name in enumerate(names))
    return path


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"), newline="")))


def page(url: str) -> AppTest:
    """The class page, as a browser would get it."""
    st.cache_data.clear()

    def script(url: str) -> None:
        from deployments.dashboard.panels import show

        show(url)

    return AppTest.from_function(script, kwargs={"url": url}, default_timeout=60).run()


def test_a_whole_day_from_the_roster_to_the_gradebook(campus, tiny, tmp_path, monkeypatch):
    # In the morning: everybody gets an invite.
    campus.classgan(
        "students", "add", "--roster", str(roster(tmp_path / "roster.csv")), "--out", str(tmp_path / "invites.csv")
    )
    invites = {row["login"]: Invite.parse(row["invite"]) for row in table(tmp_path / "invites.csv")}
    assert len(invites) == 30
    logins = sorted(invites)[:5]
    assert table(tmp_path / "invites.csv")[4]["name"] == "'=1+1, Mallory"

    # In class: three come, and later two more, and two of the first leave, one of them without a word.
    plan = tiny.changed(data=f"zip:{faces(tmp_path / 'faces.zip')}", channels=3, iterations=100_000, push_interval=1)
    campus.start("faces-day", plan)
    machines = {login: campus.join(invites[login], host=host) for login, host in zip(logins[:3], HOSTS, strict=False)}
    campus.await_iteration("faces-day", 2, 240)
    machines |= {
        login: campus.join(invites[login], host=host) for login, host in zip(logins[3:], HOSTS[3:], strict=False)
    }
    wait_until(lambda: campus.images_of(logins[0]) and campus.images_of(logins[1]), 240, "work of the first two")
    machines[logins[0]].send_signal(signal.SIGINT)
    kill_tree(machines[logins[1]].pid)
    assert machines[logins[0]].wait(60) == 0
    wait_until(lambda: all(campus.images_of(login) for login in logins), 240, "work of everybody")
    last = campus.iteration("faces-day") + 5
    campus.classgan("change", "faces-day", "--set", f"iterations={last}")
    campus.await_success("faces-day", 240)
    assert campus.iteration("faces-day") >= last  # the change holds from the next iteration on

    # Beside it: the page shows samples and names, and nobody's login.
    shown = page(campus.stack.database)
    assert not shown.exception
    assert shown.select_slider
    words = "\n".join(frame.value.to_string() for frame in shown.dataframe)
    assert "山田" in words
    assert not any(login in words for login in logins)

    # In the evening: the generator goes out into the world and comes back.
    with fake_hub() as hub:
        elsewhere = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "hub")}
        campus.classgan("push", "faces-day", "--repo", REPO, **elsewhere)
        assert {"README.md", "config.json", "generator.safetensors"} <= set(hub.files(REPO))
        out = tmp_path / "drawn.png"
        campus.classgan("generate", f"hub:{REPO}", "--count", "4", "--out", str(out), **elsewhere)
        assert Image.open(out).size[0] > 64

    # And everybody gets a mark, in four formats, each read by somebody else's parser.
    campus.classgan("export-grades", "--format", "all", "--out", str(tmp_path / "marks"))
    credited = dict(campus.ask("SELECT login, images FROM classgan.ledger"))
    full = {row["login"]: row for row in table(tmp_path / "marks" / "grades.csv")}
    assert {login: int(row["images"]) for login, row in full.items()} == credited
    assert all(credited[login] > 0 for login in logins)
    sheet = openpyxl.load_workbook(tmp_path / "marks" / "grades.xlsx").active
    header, *lines = ([cell.value for cell in row] for row in sheet.iter_rows())
    assert sum(line[header.index("images")] for line in lines) == sum(credited.values())
    canvas = {row["ID"]: row for row in table(tmp_path / "marks" / "canvas.csv") if row["ID"]}
    assert canvas["00002"]["Student"] == "山田, 太郎"
    assert sum(f"{n:05}" in canvas for n in range(30)) == 30
    marks = {row["SIS Login ID"]: float(row["classgan"]) for row in canvas.values()}
    nbgrader = {row["email"]: float(row["score"]) for row in table(tmp_path / "marks" / "nbgrader.csv") if row["email"]}
    assert {email: marks[email] for email in nbgrader} == nbgrader
