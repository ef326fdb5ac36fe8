"""What the service's routes have in common: who asks, and the parameters that many of them take."""

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from deployments.server.service import models
from deployments.server.service.rights import Caller

PREFIX = "/classgan/v1"
WHO = "classgan.login"  # in the scope: who the gate let in
BIGGEST = 2**31 - 1

Name = Annotated[str, Path(pattern=models.NAME, description="Name of the training.", examples=["digits-2"])]
After = Annotated[int, Query(ge=0, le=2**53, description="What the page before gave as `next`. 0: from the start.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Most items in a page.")]


def caller_of(request: Request) -> Caller:
    return Caller(request.scope[WHO])


Who = Annotated[Caller, Depends(caller_of)]
