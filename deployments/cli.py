"""`classgan …`: parses and calls. Heavy imports happen inside the commands, so that --help answers at once."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gan_core.errors import GanError

app = typer.Typer(
    name="classgan",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train one GAN on the machines of a whole class.",
    epilog="Start here: [bold]classgan demo[/bold] trains on handwritten digits with three workers on this machine, in about three minutes.",
)

students = typer.Typer(no_args_is_help=True, help="Let students in, look at them, shut one out.")
app.add_typer(students, name="students")

PlanOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one knob of the plan; may be repeated. `classgan plan` lists them.",
    ),
]
PresetOption = Annotated[str, typer.Option("--preset", help="Plan to start from: demo, dcgan or better.")]


def main() -> None:
    """Entry point: our own errors are a sentence and exit code 1, not a traceback."""
    try:
        app()
    except GanError as exc:
        print(f"classgan: {exc}", file=sys.stderr)
        sys.exit(1)
    except OSError as exc:
        if exc.filename is None:
            raise
        print(f"classgan: {exc.filename}: {exc.strerror}. Name another place, or make room there.", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("classgan: stopped.", file=sys.stderr)
        sys.exit(130)


@app.command()
def demo(
    workers: Annotated[int, typer.Option(min=1, max=16, help="Student workers to start.")] = 3,
    preset: PresetOption = "demo",
    changes: PlanOption = None,
) -> None:
    """Train on digits with student workers on this machine; ends with a picture and a quality figure."""
    from deployments.demo import run_demo
    from deployments.plans import plan_from

    run_demo(workers, plan_from(preset, changes))


@app.command()
def init(
    addresses: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            "-a",
            metavar="HOST",
            help="Host name or IP by which students reach this machine; may be repeated, the first goes into invites. Left out: this machine's address in its network.",
        ),
    ] = None,
    listen: Annotated[str, typer.Option(help="Address that the servers bind to.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the class server.")] = 4242,
    database_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of PostgreSQL.")] = 5442,
    database: Annotated[
        str, typer.Option(metavar="URL", help="An existing PostgreSQL, as its owner; left out, one is run here.")
    ] = "",
) -> None:
    """Make a class that students join from their own machines: certificate, logins, database. May be repeated.

    Then: `classgan students add`, and `classgan up`.
    """
    from deployments.setting_up import make_class

    make_class(addresses or [], listen, port, database_port, database)


MachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine", metavar="NAME", help="What this machine is called, if you have several. Left out: its host name."
    ),
]


@app.command()
def join(
    invite: Annotated[str, typer.Argument(help="The line from your instructor.")],
    machine: MachineOption = None,
    address: Annotated[
        str, typer.Option(metavar="HOST", help="Where the class is now, if it has moved since the invite was made.")
    ] = "",
    no_start: Annotated[
        bool, typer.Option("--no-start", help="Check and prepare only; print the line that starts the worker.")
    ] = False,
) -> None:
    """Join a class with this machine: check everything, then work until Ctrl-C. Outages are waited for."""
    from deployments import joining

    joining.join(invite, joining.machine_name() if machine is None else machine, address, start=not no_start)


@app.command()
def doctor() -> None:
    """Check whether this machine, which has joined, can take part: network, certificate, login, clock, disk, device, data."""
    from deployments.joining import Membership, examine
    from gan_core.settings import settings

    mine = Membership(settings().home)
    examine(mine.invite(), mine)


@app.command()
def up(
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=16,
            help="Student workers to start on this machine; 3, or none in a class that `classgan init` made.",
        ),
    ] = None,
) -> None:
    """Start the class and keep it up until Ctrl-C; trainings are started in the Prefect UI."""
    from deployments.demo import stay_up

    stay_up(workers)


@app.command()
def worker(name: Annotated[str, typer.Argument(help="Your name: small letters, digits and underscores.")]) -> None:
    """Join the class that runs on this machine (`classgan up`) with one more worker; Ctrl-C finishes its unit and stops."""
    from deployments.demo import join_here

    join_here(name)


@app.command()
def status(name: Annotated[str, typer.Argument(help="A training; all of them if left out.")] = "") -> None:
    """Show how trainings stand, and who computes."""
    from deployments.reports import print_status

    print_status(name)


NameArgument = Annotated[str, typer.Argument(help="The training's name.")]


@app.command()
def pause(name: NameArgument) -> None:
    """Hand nothing out any more; units that are out are still accepted. `classgan resume` goes on."""
    from deployments.controls import pause_training

    pause_training(name)


@app.command()
def resume(name: NameArgument) -> None:
    """Go on with a training that was paused, that failed, or whose coordinator is gone, exactly where it stood."""
    from deployments.controls import resume_training

    resume_training(name)


@app.command()
def cancel(name: NameArgument) -> None:
    """End a training for good. Credit, samples and the generator stay."""
    from deployments.controls import cancel_training

    cancel_training(name)


@app.command()
def change(name: NameArgument, changes: PlanOption = None) -> None:
    """Change the plan of a training from its next iteration on: learning rates, quorum, intervals; not data or model."""
    from deployments.controls import change_training

    change_training(name, changes or [])


@app.command()
def events(
    name: Annotated[str, typer.Argument(help="A training; all of them if left out.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=5_000, help="How many, the newest.")] = 30,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay and show new ones, until Ctrl-C.")] = False,
) -> None:
    """Show what happened beyond the ordinary: machines lost, units taken over, late answers, changes of the plan."""
    from deployments.controls import print_events

    print_events(name, limit, follow)


@app.command()
def generate(
    source: Annotated[str, typer.Argument(help="A generator's file, or the name of a training.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000, help="Images to draw.")] = 64,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .png for one grid, or a folder for single files.")] = Path(
        "generated.png"
    ),
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed draws the same images.")] = 0,
) -> None:
    """Draw images from a trained generator, as a grid or as single files."""
    from deployments.reports import generate_images

    generate_images(source, count, out, seed)


@app.command("train-local")
def train_local(
    preset: PresetOption = "demo",
    changes: PlanOption = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="The ordinary loop: one Adam for the whole training, no units.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the generator and its pictures.")] = Path(
        "outputs/local"
    ),
) -> None:
    """Train in this one process: the reference that a class must equal, and the way to train alone."""
    from deployments.plans import plan_from
    from deployments.reports import train_here

    train_here(plan_from(preset, changes), plain, out)


@app.command()
def plan(preset: PresetOption = "demo", changes: PlanOption = None) -> None:
    """Show every knob of a plan: value, limits, meaning."""
    from deployments.plans import plan_from, print_plan

    print_plan(plan_from(preset, changes))


@app.command("export-grades")
def export_grades(
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV file to write.")] = Path("outputs/grades.csv"),
) -> None:
    """Write every student's credit as a table."""
    from deployments.reports import export_ledger

    export_ledger(out)


Login = Annotated[str, typer.Argument(help="The student's login.")]


@students.command("list")
def students_list() -> None:
    """Everybody: machines, credit, and whether they may contribute."""
    from deployments.students import print_students

    print_students()


@students.command("add")
def students_add(
    login: Annotated[str, typer.Argument(help="Login of one student: small letters, digits, underscores.")] = "",
    name: Annotated[str, typer.Option(help="The name that others see; the login, if left out.")] = "",
    roster: Annotated[
        Path | None,
        typer.Option(
            "--roster",
            exists=True,
            dir_okay=False,
            help="A class list instead: what Canvas or Moodle exports, or a CSV with the columns login, name, email.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for a roster's invites.")] = Path("invites.csv"),
) -> None:
    """Let students in: one, whose invite is printed, or everybody in a roster who isn't in yet."""
    from deployments.students import add_roster, add_student

    if bool(login) == (roster is not None):
        raise typer.BadParameter("Name one login, or a roster with --roster.")
    if roster is not None:
        add_roster(roster, out)
    else:
        add_student(login, name)


@students.command("rotate")
def students_rotate(login: Login) -> None:
    """Make a new invite; the old one ends at once."""
    from deployments.students import rotate_student

    rotate_student(login)


@students.command("revoke")
def students_revoke(
    login: Login,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; the student reads it.")] = "the login was revoked",
) -> None:
    """Take a login away: sessions end at once, units go to others, credit stays."""
    from deployments.students import revoke_student

    revoke_student(login, reason)


@students.command("suspend")
def students_suspend(
    login: Login,
    reason: Annotated[
        str, typer.Option("--reason", "-r", help="Why; the student reads it.")
    ] = "your instructor says so",
) -> None:
    """Shut a student out at once: their sessions end, their units go to others, their credit stays."""
    from deployments.students import suspend_student

    suspend_student(login, reason)


@students.command("restore")
def students_restore(login: Login) -> None:
    """Let a student contribute again."""
    from deployments.students import restore_student

    restore_student(login)


@app.command()
def migrate() -> None:
    """Make or update the tables in the database that CLASSGAN_DATABASE_URL names."""
    from deployments.reports import database_url
    from gan_core.store.migrate import migrate as run

    with database_url() as url:
        run(url)
    typer.echo("The database is up to date.")


if __name__ == "__main__":
    main()
