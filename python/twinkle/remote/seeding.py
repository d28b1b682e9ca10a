"""Seeds of a process: replicas must draw alike, so every worker and the driver seed alike what they have loaded."""

from __future__ import annotations

import random
import sys

__all__ = ["seed_loaded"]


def seed_loaded(seed: int | None) -> None:
    """Seeds Python's generator, and NumPy's and torch's where they are loaded; None seeds nothing."""
    if seed is None:
        return
    random.seed(seed)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    if torch is not None:
        torch.manual_seed(seed)
