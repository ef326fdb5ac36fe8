"""Who may do what: the instructor everything, a student what concerns their own trainings. Others' trainings don't exist for them (404)."""

import getpass
from dataclasses import dataclass

from psycopg import Connection

from deployments.server.class_file import INSTRUCTOR
from deployments.server.gate.runs import Refused
from gan_core.errors import PlanError
from gan_core.plan import Plan
from gan_core.scheduler.demand import Demand
from gan_core.settings import settings
from gan_core.store.scheduler import submissions
from gan_core.store.scheduler.submissions import Ticket
from gan_core.units import counted

# What of a plan costs the instructor, or leads around the checks of credit: a student's has it as it stands.
INSTRUCTORS = ("hub_repo", "checks", "cluster_shifts", "credit_late")


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who is logged in at the class server."""

    login: str

    @property
    def is_instructor(self) -> bool:
        return self.login == INSTRUCTOR

    @property
    def owner(self) -> str | None:
        """Whose trainings they see; None: everybody's."""
        return None if self.is_instructor else self.login

    @property
    def may_submit(self) -> bool:
        # What the instructor submits on the class's machine belongs to the account there: it must not be a student's.
        return self.is_instructor or (settings().student_trainings > 0 and self.login != getpass.getuser())

    def author(self, connection: Connection) -> str:
        """Their name as others may read it in a history."""
        row = connection.execute(
            "SELECT display_name FROM classgan.students WHERE login = %s", (self.login,)
        ).fetchone()
        return row[0] if row else self.login

    def ticket(self, connection: Connection, name: str) -> Ticket:
        """This training, if it is theirs to see. Raises Refused (404)."""
        found = submissions.ticket(connection, name)
        if found is None or not self._owns(found):
            whose = "" if self.is_instructor else " of yours"
            raise Refused(404, f"There is no training {name!r}{whose}. GET trainings lists them.")
        return found

    def _owns(self, ticket: Ticket) -> bool:
        return self.is_instructor or (ticket.owner == self.login and self.login != getpass.getuser())

    def require_instructor(self, what: str) -> None:
        if not self.is_instructor:
            raise Refused(403, f"Only the instructor {what}.")

    def require_submission(self, connection: Connection, plan: Plan, demand: Demand) -> None:
        """Raises Refused (403) if they may not submit, PlanError if they may not submit this."""
        if self.is_instructor:
            return
        if settings().student_trainings == 0:
            raise Refused(
                403,
                "In this class, students may not submit trainings. The instructor can allow it with CLASSGAN_STUDENT_TRAININGS.",
            )
        if not self.may_submit:
            raise Refused(403, f"The account that runs the class is called {self.login}, too. Ask for another login.")
        usual, faults = Plan(), []
        for field in INSTRUCTORS:
            if getattr(plan, field) != getattr(usual, field):
                faults.append(
                    f"{field} is {getattr(plan, field)!r}: in a student's plan it stays {getattr(usual, field)!r}"
                )
        data = sorted({usual.data, *submissions.known_data(connection)})
        if plan.data not in data:
            faults.append(f"data is {plan.data!r}: a student's plan learns from what the class has: {', '.join(data)}")
        if demand.priority > 0:
            faults.append(f"priority is {demand.priority}: a student's is 0 or lower")
        if faults:
            raise PlanError("Only the instructor may submit this:\n  " + "\n  ".join(faults))

    def require_room(self, connection: Connection) -> None:
        """Raises Refused (403) if the newest of their trainings that run or wait is one too many."""
        most = settings().student_trainings
        if not self.is_instructor and (has := submissions.alive(connection, self.login)) > most:
            raise Refused(
                403,
                f"You have {counted(has - 1, 'training')} that {'runs or waits' if has == 2 else 'run or wait'}, and a student may have {most}. Cancel or pause one first.",
            )

    def require_priority(self, now: int, wanted: int) -> None:
        if not self.is_instructor and wanted > now:
            raise Refused(403, f"priority is {now}, and a student may only lower it (got {wanted}).")
