"""Data loading on a mesh: every data rank its rows, in every epoch, after every restart."""

from __future__ import annotations

from twinkle.dataloader.loader import DataLoader, Step
from twinkle.dataloader.sampler import DeviceMeshSampler

__all__ = ["DataLoader", "DeviceMeshSampler", "Step"]
