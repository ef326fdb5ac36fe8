"""`classgan help`: an error or a check of `doctor`, explained."""

from typing import Annotated

import typer

from deployments.troubleshooting import sections

commands = typer.Typer()


@commands.command("help")
def explain(
    word: Annotated[
        str, typer.Argument(help="The word that the last line of an error message names. Default: list all words.")
    ] = "",
) -> None:
    """Explain an error or a check of `doctor`: what it means, why it comes, what to do."""
    from rich.console import Console
    from rich.markdown import Markdown

    known = sections()
    if not word:
        print("\n".join(known))
    elif word not in known:
        raise typer.BadParameter(f"There is nothing about {word!r}. Choose one of: {', '.join(known)}.")
    else:
        Console().print(Markdown(known[word]))
