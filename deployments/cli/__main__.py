"""`python -m deployments.cli`: the command without its script."""

from deployments.cli import main

main()
