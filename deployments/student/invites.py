"""An invite: one line of text that lets one student's machine join. It fits into an e-mail and a Colab cell."""

import base64
import json
import zlib
from importlib.metadata import version

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gan_core.errors import InviteError

MARK = "classgan2."  # what every invite begins with; the number is the format's
OLD_MARK = "classgan1."  # of version 0.1: three more facts, after the port, about the database

HOST = r"^[A-Za-z0-9.:_-]{1,253}$"
VERSION = r"^[0-9A-Za-z.+!-]{1,40}$"
LONGEST = 4_096  # bytes that an invite may have unpacked


class Invite(BaseModel):
    """What an invite says. Whoever has it is this student."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Narrow, since an invite may come from anybody, and parts of it are printed as commands.
    host: str = Field(pattern=HOST)
    port: int = Field(ge=1, le=65_535)  # of the class server
    login: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    secret: str = Field(pattern=r"^[A-Za-z0-9_-]{8,100}$")
    pin: str = Field(pattern=r"^[A-Za-z0-9_-]{43}$")  # of the certificate
    classgan: str = Field(pattern=VERSION)  # that the class runs
    prefect: str = Field(pattern=VERSION)

    @property
    def line(self) -> str:
        """The invite as text: letters, digits, `-`, `_` and one dot, with a checksum so that a line cut short is noticed."""
        packed = zlib.compress(json.dumps(list(self.model_dump().values()), separators=(",", ":")).encode(), 9)
        return MARK + base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @staticmethod
    def parse(line: str) -> "Invite":
        """The invite in a line of text; quotes, spaces and line breaks that a mail program put in are forgiven.

        Raises:
            InviteError: this is none, or not all of one.
        """
        text = "".join(line.split()).strip("'\"<>`")
        mark = OLD_MARK if text.startswith(OLD_MARK) else MARK
        if not text.startswith(mark):
            raise InviteError(
                f"An invite begins with {MARK!r}, this with {text[:12]!r}. Copy the whole line from your instructor's mail."
            )
        body = text.removeprefix(mark)
        try:
            sent = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            # Decoding ignores strange characters and the last one's spare bits.
            if base64.urlsafe_b64encode(sent).decode().rstrip("=") != body:
                raise ValueError("not as it was written")
            stream = zlib.decompressobj()
            packed = stream.decompress(sent, LONGEST)
            if not stream.eof:  # its checksum comes last
                raise ValueError("cut short")
            facts = json.loads(packed)
            if mark == OLD_MARK:
                facts = [
                    *facts[:2],
                    *facts[5:-2],
                    version("classgan"),
                    version("prefect"),
                ]  # it names versions that are gone
            return Invite(**dict(zip(Invite.model_fields, facts, strict=True)))
        except (ValueError, TypeError, zlib.error, ValidationError) as exc:
            raise InviteError(
                f"This invite is damaged: {len(text)} characters arrived, and they don't fit together. Copy the whole line, to its very end."
            ) from exc

    def moved(self, host: str) -> "Invite":
        """The same invite into a class that has another address now."""
        return self.model_copy(update={"host": host}) if host else self

    def command(self) -> str:
        """What the student types."""
        return f"classgan join {self.line}"
