"""A class that was made by the version before goes on, and a machine that still has it reads what to do."""

import hashlib
import json
import runpy
from importlib.resources import files
from uuid import uuid4

import psycopg
import pytest
import torch

from gan_core.errors import StoreError
from gan_core.networks.models import initial_weights, layout_of
from gan_core.policies.codecs import CODECS, VERSION, decode, encode
from gan_core.store import student
from gan_core.store.engine import Link
from gan_core.store.migrate import add_student
from gan_core.units import PAYLOAD_FORMAT

STATISTICS = torch.arange(6, dtype=torch.float32)


def of_form_1(payload: bytes) -> bytes:
    """The payload as the version before wrote it: with norm statistics at its end."""
    start = 8 + int.from_bytes(payload[:8], "little")
    entries, body = json.loads(payload[8:start]), payload[start:]
    end = len(body) + STATISTICS.nbytes
    entries["statistics/generator.1.running_mean"] = {"dtype": "F32", "shape": [6], "data_offsets": [len(body), end]}
    body += STATISTICS.numpy().tobytes()
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    entries["__metadata__"] |= {"version": "1", "checksum": digest}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + body


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_stored_is_brought_into_the_new_form(tiny, codec):
    convert = runpy.run_path(
        str(files("gan_core.store").joinpath("migrations", "versions", "0018_statistics_stay.py"))
    )["without_statistics"]
    layout = layout_of(tiny)
    payload = encode(initial_weights(tiny), layout, codec)
    old = of_form_1(payload)
    assert convert(old) == payload
    assert torch.equal(decode(convert(old), layout, codec).generator, decode(payload, layout, codec).generator)


@pytest.fixture
def ada(database, connection):
    add_student(connection, "ada")
    return database.replace("//instructor@", "//ada@")


def test_the_database_and_the_payloads_speak_of_the_same_form(connection):
    assert str(PAYLOAD_FORMAT) == VERSION
    connection.execute("SELECT classgan.require_format(%s)", (PAYLOAD_FORMAT,))
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="have form 1, the class's have form 2"):
        connection.execute("SELECT classgan.require_format(1)")


def test_a_machine_of_the_version_before_is_told_to_update(ada, connection):
    """When it registers as that version did; and when it had registered before the class was updated."""
    boot = uuid4()
    with Link(ada) as link:
        with pytest.raises(StoreError, match=r"Install the class's version on it and start its worker again"):
            link.call(lambda c: c.execute("SELECT student.register('desk', %s, 'cpu', '{}', NULL)", (boot,)))
        worker = link.call(lambda c: student.register(c, "desk", boot, "cpu", {}))
        assert link.call(lambda c: student.claim(c, worker, boot)) is None
        connection.execute("UPDATE classgan.workers SET format = DEFAULT")
        with pytest.raises(StoreError, match=r"another version of classgan than the class"):
            link.call(lambda c: student.claim(c, worker, boot))
