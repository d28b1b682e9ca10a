"""Process groups of a mesh: which ones (a plan, pure data), how they are made, and how torch's own meshes get them.

`plan` knows no torch. `making` finds the groups that are there and makes those that are not; `meeting` is how their
members agree on that; `registry` is the only file that touches names which torch keeps to itself; `torch_mesh` turns a
mesh into torch's and back. Nothing here imports torch until a function is called.
"""

from __future__ import annotations

from twinkle.process_groups.plan import GroupPlan, Partition, PlannedGroup

__all__ = ["GroupPlan", "Partition", "PlannedGroup"]
