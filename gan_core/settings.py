"""Every environment variable of the product, read here and nowhere else."""

from functools import cache
from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from gan_core.errors import SettingsError


class Settings(BaseSettings):
    """What differs from machine to machine. What differs from training to training is the plan."""

    model_config = SettingsConfigDict(env_prefix="CLASSGAN_", extra="ignore")

    database_url: str = Field(
        "",
        description="PostgreSQL to use, as postgresql://user:password@host:port/name. On a student's machine the class server; `join` sets it.",
    )
    home: Path = Field(
        Path(".classgan"), description="Folder for the class's databases, caches and logs. Made on first use."
    )
    outputs: Path = Field(Path("outputs"), description="Folder for pictures, models and grade files.")
    data: Path = Field(Path(), description="Folder on this machine from which relative paths in a plan's `data` start.")
    worker_name: str = Field("", description="Name of this machine's worker. The worker sets it; leave it alone.")
    device: str = Field(
        "",
        description="Device to compute on: cpu, cuda:0 or mps. Several, separated by commas: a shift on each; by +: one shift "
        "on all of them. Empty: the best one found. One that doesn't work, or computes wrong numbers, gives way to the CPU.",
    )
    threads: int = Field(0, ge=0, le=1024, description="CPU threads a shift computes with. 0: PyTorch decides.")
    stop_file: Path | None = Field(
        None,
        description="When this file exists, the shift finishes its unit and ends. The worker sets it; leave it alone.",
    )
    prefect_port: int = Field(
        4200,
        ge=1,
        le=65535,
        description="Port of the Prefect UI in a class without `classgan init`. If it is taken, another free one.",
    )
    max_running: int = Field(
        3, ge=1, le=1_000, description="Most trainings that run at the same time. Others wait in the queue."
    )
    max_wait_minutes: float = Field(
        240, gt=0, le=100_000, description="Minutes after which a waiting training comes first, before every priority."
    )
    student_trainings: int = Field(
        0,
        ge=0,
        le=100,
        description="Most trainings that a student may have waiting and running, if submitted through the class server's "
        "service. 0: none.",
    )
    placement: str = Field(
        "balanced",
        description="Placement policy, which decides which training gets a free machine: `simple`, `balanced`, `fair`, or one of another package.",
    )
    mlflow_url: str = Field(
        "",
        description="MLflow server to which a training is copied when it ends, such as http://127.0.0.1:5000. Empty: none.",
    )

    @property
    def cache(self) -> Path:
        """Folder of resized images."""
        return self.home / "cache"


@cache
def settings() -> Settings:
    """The settings of this process. Raises SettingsError naming every bad variable."""
    try:
        return Settings()
    except ValidationError as exc:
        faults = [f"CLASSGAN_{str(e['loc'][0]).upper()}: {e['msg']} (got {e['input']!r})" for e in exc.errors()]
        raise SettingsError("These settings have impossible values:\n  " + "\n  ".join(faults)) from exc
