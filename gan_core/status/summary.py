"""What a training is doing, or waits for, in a sentence with the next step. From facts alone: a dead coordinator can't lie."""

from gan_core.store.viewers.ledger import Overview
from gan_core.units import TrainingState, counted

WORKER = "`classgan worker NAME` on this machine, or `classgan join INVITE` on a student's"

RESUMED = "waits for a coordinator"  # what a person's resume leaves until the queue has looked


def summary(view: Overview) -> str:
    """One sentence for people; never empty."""
    name, resume = view.name, f"Next: classgan resume {view.name}"
    match view.state:
        case TrainingState.SUCCEEDED:
            return f"done after {counted(view.iteration, 'iteration')}. More images: classgan generate {name}"
        case TrainingState.CANCELLED:
            return f"ended for good after iteration {view.iteration:,}. Another training needs another name."
        case TrainingState.FAILED:
            return f"failed: {view.message.rstrip('.')}. Fix that, then: classgan resume {name}"
        case TrainingState.PAUSED:
            return f"paused after iteration {view.iteration:,}; nothing is handed out. {_because(view)}{resume}"
        case TrainingState.QUEUED if not view.is_led and view.message not in ("", RESUMED):
            return f"queued: {view.message}. It starts by itself. The whole queue: classgan queue"
        case TrainingState.QUEUED if not view.is_led:
            return f"waits for a coordinator: the instructor's worker takes it within seconds if it is up. {resume}"
        case _:
            return _alive(view)


def _alive(view: Overview) -> str:
    """Of a training that should be moving."""
    if view.leader is None:
        waiting = f" {view.standbys[0]} stands by and takes over now." if view.standbys else ""
        return f"nobody leads it: its coordinator has ended.{waiting or f' Next: classgan resume {view.name}'}"
    if not view.is_led:
        silent = f"its coordinator ({view.leader}) has been silent for {view.leader_silent:.0f} s"
        if view.standbys:
            return f"{silent}; {view.standbys[0]} stands by and takes over within seconds. Nothing to do."
        return (
            f"{silent}. If its process is gone, the class starts another one within half a minute; "
            f"if that doesn't happen: classgan resume {view.name}"
        )
    if view.state is not TrainingState.RUNNING:
        return f"{view.message or 'starting'}. Nothing to do."
    standby = f" Standing by: {', '.join(view.standbys)}." if view.standbys else ""
    return _round(view) + standby


def _round(view: Overview) -> str:
    """Of the open iteration of a training that is led."""
    have = f"{view.gathered:,} of {counted(view.quorum, 'image')}"
    is_over = view.seconds_left is not None and view.seconds_left <= 0
    if not view.leased and (not view.open or (is_over and view.gathered)):
        return f"closing iteration {view.iteration:,} ({have}). Nothing to do."
    if not view.workers_online and view.workers_waiting:
        those = "1 has joined and is" if view.workers_waiting == 1 else f"{view.workers_waiting} have joined and are"
        return f"waiting for workers: {those} given a shift now. Nothing to do."
    if not view.workers_online:
        return f"waiting for workers: 0 online, 1 needed. Next: start one with {WORKER}"
    units = f"{counted(view.leased, 'unit')} {'is' if view.leased == 1 else 'are'} being computed"
    if view.seconds_left is not None:
        return (
            f"iteration {view.iteration:,} closes in {max(0.0, view.seconds_left):.0f} s: {have} that are expected are in, {units}, "
            f"{counted(view.workers_online, 'worker')} online. Nothing to do."
        )
    return (
        f"waiting for quorum: {have} of iteration {view.iteration:,} are in, {units}, {view.open} open, "
        f"{counted(view.workers_online, 'worker')} online. Nothing to do."
    )


def _because(view: Overview) -> str:
    reason = view.message.partition(";")[0]
    return f"Why: {reason}. " if reason else ""
