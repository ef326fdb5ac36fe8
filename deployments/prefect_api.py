"""The few calls to Prefect's API that a stack makes: without Prefect's client, which takes seconds to import."""

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from gan_core.errors import StackError


class PrefectApi:
    """Call it with method, path and body; it returns what the answer says, and None where something is there already.
    It raises StackError where Prefect refuses, or where something else than Prefect answers.

    Args:
        environment: Prefect's settings, of which this uses address, login and certificate.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.url = environment["PREFECT_API_URL"]
        self._headers = {"Content-Type": "application/json"}
        if login := environment.get("PREFECT_API_AUTH_STRING"):
            self._headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.ProxyHandler({})
        ]  # never behind a proxy: it is here
        if pem := environment.get("PREFECT_API_SSL_CERT_FILE"):
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=pem)))
        self._opener = urllib.request.build_opener(*handlers)

    def __call__(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}{path}", method=method, data=data, headers=self._headers)
        for patience in (0.2, 0.5, 1, 2, 4, 0):
            try:
                with closing(self._opener.open(request, timeout=30)) as response:
                    return json.loads(response.read() or b"null")
            except urllib.error.HTTPError as exc:
                if exc.code == 409:  # it is there already
                    return None
                if exc.code == 503 and patience:  # its SQLite was locked: nothing was done
                    time.sleep(patience)
                    continue
                reason = exc.read().decode(errors="replace")[:500]
                raise StackError(f"Prefect refused {method} {path} ({exc.code}): {reason}") from exc
            except (http.client.HTTPException, ValueError) as exc:
                raise StackError(f"What answers at {self.url} is not Prefect: {exc}.") from exc
        return None
