"""What an application can be told."""

from __future__ import annotations

import os
import pathlib
import shlex
from typing import Any, Dict, List, Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..program import PROGRAM

PREFIX = "AERIE_RAY_"


class Settings(BaseModel):
    """Of an application; by the same names arguments of `serve run` and `args` of a YAML file."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="a file, a folder or ORG/REPO that every node finds")
    threads: int = Field(4, ge=1, description="of a replica, and the cores that it is placed by (num_cpus)")
    flags: List[str] = Field([], description="more flags of `aerie serve`; a text is split as a shell does")
    min_replicas: int = Field(1, ge=0)
    max_replicas: int = Field(1, ge=1)
    target_requests: float = Field(8, gt=0, description="running and waiting, of a replica, that scaling aims at")
    max_requests: int = Field(0, ge=0, description="that a replica takes before others wait; 0: four times the target")
    upscale_seconds: float = Field(10, ge=0, description="for which there is more to do before a replica is added")
    downscale_seconds: float = Field(300, ge=0, description="for which there is less before one is taken away")
    drain_seconds: float = Field(600, gt=0, description="that a replica which is taken away may go on with what it has")
    start_seconds: float = Field(900, gt=0, description="until a replica has to listen")
    fronts: int = Field(1, ge=1, description="processes that hand requests on, beside Ray's head")
    retries: int = Field(4, ge=0, description="of a request of which nothing was said yet, as replicas end")
    routing: str = Field("prefix", pattern="^(prefix|load)$",
                         description="prefix: to who read the same beginning; load: to who has the least to do")
    program: str = Field(str(PROGRAM), description="the program, on every node")

    @field_validator("flags", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return shlex.split(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> "Settings":
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas is {self.min_replicas}, and max_replicas only {self.max_replicas}")
        taken = {"-m", "--model", "--host", "--port", "--threads", "--trust-proxy", "--tls-cert", "--tls-key"}
        for flag in self.flags:
            if flag.split("=")[0] in taken:
                raise ValueError(f"flags: {flag} is the application's own to say")
        return self

    def requests_at_once(self) -> int:
        return self.max_requests or max(1, round(4 * self.target_requests))


def read_settings(given: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """What is given, and of the rest what the environment says. Raises ValueError, which names what is wrong."""
    said: Dict[str, Any] = {name: environment[PREFIX + name.upper()] for name in Settings.model_fields
                            if PREFIX + name.upper() in environment}
    said.update(given)
    if not said.get("model"):
        raise ValueError(f"no model: give model=FILE, or set {PREFIX}MODEL")
    path = pathlib.Path(said["model"])
    if path.exists():
        said["model"] = str(path.resolve())  # replicas have working folders of their own
    try:
        return Settings(**said)
    except ValidationError as error:
        problems = "; ".join(": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors())
        names = ", ".join(Settings.model_fields)
        raise ValueError(f"settings of aerie.ray: {problems} (there are {names})") from None
