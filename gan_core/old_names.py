"""Old names of modules that have moved: an import of an old name gets the module under its new name."""

import sys
from importlib.abc import MetaPathFinder

MOVED = {
    "deployments.client": "deployments.server.client",
    "deployments.notebook": "deployments.student.notebook",
    "gan_core.policies.placement": "gan_core.machines",
}


class _Signpost(MetaPathFinder):
    """Asked last, when no module of that name was found."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if place := MOVED.get(fullname):
            raise ModuleNotFoundError(f"{fullname} is called {place} now. Change that line of yours.", name=fullname)


def put_up_signpost() -> None:
    if not any(isinstance(finder, _Signpost) for finder in sys.meta_path):
        sys.meta_path.append(_Signpost())
