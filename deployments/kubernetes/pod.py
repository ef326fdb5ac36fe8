"""What runs in a pod: a student's machine, made from the invite that is mounted there.

    python -m deployments.kubernetes.pod shift RUN RANK     one shift, as the Prefect worker of the pool asks for it
    python -m deployments.kubernetes.pod join               joins as a laptop does, and stays

Whatever the pod's environment says about Prefect is not looked at: address, login and certificate follow from the invite,
and the flow is pinned as on every student's machine.
"""

import signal
import subprocess
import sys
from pathlib import Path

from deployments.prefect_settings import ENTRYPOINT, clean_environment
from deployments.student.doctor import Doctor, Trouble
from deployments.student.invites import Invite
from deployments.student.join import Membership, join, machine_name
from gan_core.errors import GanError, InviteError
from gan_core.settings import settings

INVITE = Path("/etc/classgan/invite")  # key `invite` of the secret `classgan-invite`


def work_shift(run: str, rank: str, invite_file: Path = INVITE) -> int:
    """Work this Prefect run's shift; returns its exit code. A polite kill, as before an eviction, finishes the unit first.

    Args:
        run: id of the Prefect run.
        rank: number of this pod among those that run. The machine is called after it: names must not run out.
        invite_file: where the invite lies.

    Raises:
        InviteError: there is none, it is damaged, or it doesn't lead into a class.
    """
    mine = Membership(settings().home)
    mine.make_folder()
    environment = shift_environment(read_invite(invite_file), mine, run, rank)
    stop_file = mine.folder / "stop"
    signal.signal(signal.SIGTERM, lambda *_: stop_file.touch())
    command = [sys.executable, "-P", "-m", "deployments.student.locked_process"]
    environment["CLASSGAN_STOP_FILE"] = str(stop_file)
    return subprocess.run(command, env=environment, cwd=mine.folder, check=False).returncode


def shift_environment(invite: Invite, mine: Membership, run: str, rank: str) -> dict[str, str]:
    """What a shift's process finds in its environment, once the class server has shown the certificate of the invite.

    Raises:
        InviteError: it doesn't answer, or shows another one.
    """
    doctor = Doctor(invite, mine.pem)
    try:
        doctor.reachable()
        doctor.pinned()
    except Trouble as exc:
        raise InviteError(f"This pod can't take part: {exc}") from exc
    return {
        **clean_environment(),
        **mine.environment(invite, rank),
        "PREFECT__FLOW_RUN_ID": run,
        "PREFECT__FLOW_ENTRYPOINT": ENTRYPOINT,
    }


def read_invite(path: Path) -> Invite:
    """The invite in this file.

    Raises:
        InviteError: it isn't there, or is damaged.
    """
    try:
        return Invite.parse(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InviteError(
            f"There is no invite in {path} ({exc.strerror}). Put one into the cluster: "
            "kubectl -n classgan create secret generic classgan-invite --from-file=invite=FILE"
        ) from exc


def main(words: list[str]) -> int:
    match words:
        case ["shift", run, rank]:
            return work_shift(run, rank)
        case ["join"]:
            join(read_invite(INVITE).line, machine_name(), address="", start=True)
            return 0
    raise InviteError(f"A pod does `shift RUN RANK` or `join`, not {' '.join(words)!r}.")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except GanError as exc:
        sys.exit(f"classgan: {exc}")
