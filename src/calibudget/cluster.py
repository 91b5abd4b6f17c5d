"""The seam to Ray: the module, and a connection to a cluster or to one that is started on this machine."""

from __future__ import annotations

import logging
from typing import Any

from calibudget.errors import DependencyError, InputError


def ray_module() -> Any:
    """The module `ray`.

    Raises:
        DependencyError: it isn't installed.
    """
    try:
        import ray
    except ImportError as error:
        raise DependencyError("engine: ray needs ray; install: pip install 'calibudget[ray]'") from error
    return ray


def connect(ray: Any, address: str | None, refusal: type[InputError]) -> bool:
    """Connect to a cluster, or start one; False where this process has a connection already, which is used as it is.

    Args:
        ray: the module.
        address: the cluster's ("auto" finds the one of this machine); None starts Ray on this machine.
        refusal: the error to raise.

    Raises:
        InputError: there is no cluster at the address.
    """
    if ray.is_initialized():
        return False
    options = {"include_dashboard": False} if address is None else {"address": address}
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if address is None else f"at {address!r}"
        raise refusal(f"no Ray cluster {where}: {error}") from error
    return True
