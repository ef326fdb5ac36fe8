"""The errors of the program: one class for each kind, with a section in docs/troubleshooting.md.

GanError
├── PlanError            a plan that can't be trained: all faults at once
├── SettingsError        an environment variable that makes no sense
├── DataError            images missing, unreadable or other than the training's
├── PayloadError         bytes that are not the tensors this training expects
├── QualityError         a quality score that can't be computed for this data
├── StoreError           raised from the driver's errors, `from exc`
│   ├── StoreUnreachable the database doesn't answer; a retry may help
│   └── SchemaOutdated   the tables are older than the program
├── TrainingError        a training that can't be started, continued or found
│   └── LeadLost         another coordinator leads it now
├── RosterError          a roster that can't be read, or a login that can't be given
├── RubricError          a rubric that can't be used
├── InviteError          a line that is no invite, a damaged invite, or a class that doesn't let this machine in
├── ClusterError         a Kubernetes cluster that doesn't answer, or refuses
├── HubError             the Hugging Face Hub doesn't take or give what it should
│   └── HubBusy          it doesn't answer, or accepts no more requests for now; a later retry may help
├── MirrorError          MLflow is not installed, doesn't answer, or refuses
├── DeviceBroken         a GPU that computes nothing any more in this process
├── DeviceTooSmall       a training whose step is larger than this machine's memory
└── StackError           a part of the local stack that does not start
"""

import re

from gan_core.units import TrainingState


class GanError(Exception):
    """Base of all. Its text is a sentence for the person at the keyboard: value, limit, next step."""

    @classmethod
    def anchor(cls) -> str:
        """Its section in docs/troubleshooting.md: `plan` for PlanError, `store-unreachable` for StoreUnreachable."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__.removesuffix("Error")).lower()


class PlanError(GanError):
    """The plan can't be trained as it stands."""


class SettingsError(GanError):
    """A setting has an impossible value."""


class DataError(GanError):
    """The images are missing, unreadable, or not the ones this training uses."""


class PayloadError(GanError):
    """The bytes are not what this training's model and codec allow."""


class QualityError(GanError):
    """This quality score needs something that the data doesn't have."""


class StoreError(GanError):
    """The database refused."""


class StoreUnreachable(StoreError):
    """The database does not answer.

    Args:
        answered: somebody did answer and can't serve now, so the connection itself is well.
        retry_after: seconds before which they don't want to be asked again; 0 if they didn't say.
    """

    def __init__(self, said: str = "", *, answered: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(said)
        self.answered, self.retry_after = answered, retry_after


class SchemaOutdated(StoreError):
    """The database's tables were made by another version."""


class TrainingError(GanError):
    """This training can't be started, continued or found."""


class LeadLost(TrainingError):
    """Another coordinator has taken this training over; this one may stand by again."""


class Finished(Exception):
    """Not an error: a person ended or paused the training, or it can't go on by itself; its state says which."""

    def __init__(self, state: TrainingState, iteration: int) -> None:
        super().__init__(f"{state} after iteration {iteration}")
        self.state, self.iteration = state, iteration


class RosterError(GanError):
    """This roster can't be read, or this login can't be given."""


class RubricError(GanError):
    """This rubric can't be used."""


class InviteError(GanError):
    """This line is no invite, or the class that it names doesn't let this machine in."""


class ClusterError(GanError):
    """The Kubernetes cluster does not answer, or refuses."""


class HubError(GanError):
    """The Hugging Face Hub refused."""


class HubBusy(HubError):
    """The hub does not answer, or accepts no more requests for now."""


class MirrorError(GanError):
    """MLflow is not installed, does not answer, or refuses."""


class DeviceBroken(GanError):
    """This process can't use its device any more; a fresh one may."""


class DeviceTooSmall(GanError):
    """One step of the training takes more memory than any device of this machine has room for."""


class StackError(GanError):
    """A part of the local stack did not start."""
