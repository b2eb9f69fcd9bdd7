"""The routers of this process's handles, by the names of their deployments.

In a module of its own: Ray hands the module of a router on as a copy, which has no variables in common with this
process's.
"""

from __future__ import annotations

from typing import Any, Dict

ROUTERS: Dict[str, Any] = {}
