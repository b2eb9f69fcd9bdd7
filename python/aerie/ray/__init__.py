"""Several servers on a Ray cluster: a Ray Serve application, and training data made by many machines.

    serve run aerie.ray:app model=model.gguf threads=8 max_replicas=4

answers OpenAI's API, and all else that `aerie serve` answers, on port 8000. In Python it is

    serve.run(aerie.ray.build(model="model.gguf", threads=8, max_replicas=4))

Settings has what there is to set; app() also takes it from the environment, as AERIE_RAY_MODEL and so on.
train_data() shares `aerie train data` out over a cluster. docs/scaling/servers.md has the rest.
"""

try:
    import ray as _ray  # noqa: F401
    from ray import serve as _serve  # noqa: F401
except ImportError as error:
    raise ImportError(f"aerie.ray needs Ray ({error}): pip install 'ray[serve]'") from None

from .application import app, build
from .data import train_data
from .prefix_router import PrefixRouter
from .settings import Settings

__all__ = ["PrefixRouter", "Settings", "app", "build", "train_data"]
