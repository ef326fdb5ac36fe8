"""What the tests of whole trainings share."""

import pytest

from gan_core.plan import Plan


@pytest.fixture(scope="session")
def tiny(tiny: Plan) -> Plan:
    """Without backups: on a busy machine one that pauses for a second is helped, and counts of leases and units vary."""
    return tiny.changed(backup_leases=False)
