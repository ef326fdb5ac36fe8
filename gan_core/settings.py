"""Every environment variable of the product, read here and nowhere else."""

from functools import cache
from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from gan_core.errors import SettingsError


class Settings(BaseSettings):
    """What differs from machine to machine. What differs from training to training is the plan."""

    model_config = SettingsConfigDict(env_prefix="CLASSGAN_", extra="ignore")

    database_url: str = Field("", description="PostgreSQL to use, as postgresql://user:password@host:port/name.")
    home: Path = Field(Path(".classgan"), description="Folder of ours: databases, caches, logs. Made on first use.")
    outputs: Path = Field(Path("outputs"), description="Folder for pictures, models and grade files.")
    data: Path = Field(Path(), description="Folder where relative paths in a plan's `data` start, on this machine.")
    worker_name: str = Field("", description="Name of this machine's worker; set by the worker itself.")
    device: str = Field(
        "",
        description="Device to compute on: cpu, cuda:0, mps; several with commas share out averaged gradients. Empty: the best one found.",
    )
    threads: int = Field(0, ge=0, le=1024, description="CPU threads a shift computes with. 0: PyTorch decides.")
    stop_file: Path | None = Field(
        None, description="A shift ends in good order once this file exists; set by the worker."
    )
    prefect_port: int = Field(4200, ge=1, le=65535, description="Port that the local stack prefers for the Prefect UI.")
    max_running: int = Field(
        3, ge=1, le=1_000, description="Trainings that run at the same time; more wait in the queue."
    )
    max_wait_minutes: float = Field(
        240, gt=0, le=100_000, description="A training that waited this long comes before every priority."
    )
    student_trainings: int = Field(
        0,
        ge=0,
        le=100,
        description="Trainings that a student may have waiting or running at once, by the class server's service. 0: none.",
    )
    placement: str = Field(
        "balanced", description="Who gets a free machine: `simple`, `balanced`, `fair`, or another package's policy."
    )
    mlflow_url: str = Field(
        "", description="MLflow server that trainings are mirrored to at their end, such as http://127.0.0.1:5000."
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
        raise SettingsError("Settings that make no sense:\n  " + "\n  ".join(faults)) from exc
