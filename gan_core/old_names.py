"""Old names of modules that have moved: an import of an old name ends with a sentence that says the new one."""

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
            # No ModuleNotFoundError: of `from deployments import notebook`, Python would show its own sentence instead.
            raise ImportError(f"{fullname} is called {place} now. Change that import.", name=fullname)


def put_up_signpost() -> None:
    if not any(isinstance(finder, _Signpost) for finder in sys.meta_path):
        sys.meta_path.append(_Signpost())
