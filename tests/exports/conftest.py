"""Students with names of every kind."""

import pytest
from marked import ODD

from gan_core.store import logins


@pytest.fixture
def odd(connection):
    """Two of each: one out of a Canvas and one out of a Moodle roster; they have done nothing yet."""
    for number, (login, name) in enumerate(ODD.items()):
        columns = {
            "Student": name,
            "ID": str(1000 + number),
            "SIS User ID": f"00{number}",
            "SIS Login ID": f"{login}@example.edu",
            "Section": "=S",
        }
        logins.issue(
            connection,
            f"c_{login}",
            name,
            {"key": f"Canvas:{1000 + number}", "email": f"{login}@example.edu", "columns": columns},
        )
        email = "=1+1@example.edu" if login == "formula" else f"{login}@example.org"
        columns = {"First name": name, "Last name": "O'Neil", "ID number": f"00{number}", "Email address": email}
        logins.issue(connection, f"m_{login}", name, {"key": f"Moodle:{email}", "email": email, "columns": columns})
    return connection
