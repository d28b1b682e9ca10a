"""The launchers: which variables say who a process is, one row each, in the order in which they are asked."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FIELDS", "INTERACTIVE", "LAUNCHERS", "SINGLE", "Launcher"]

#: The fields of a record, in order.
FIELDS = ("rank", "world_size", "local_rank", "local_world_size", "node_rank", "nnodes")

#: What a process is when nothing launched it: nobody, alone, on the only node.
SINGLE = dict(zip(FIELDS, (-1, 1, -1, 1, 0, 1), strict=True))


@dataclass(frozen=True)
class Launcher:
    """How one launcher tells a process who it is; the first variable of a field that is set counts."""

    name: str
    #: The launcher is there when one variable of each of these is set.
    shown_by: tuple[tuple[str, ...], ...]
    rank: tuple[str, ...]
    world_size: tuple[str, ...]
    local_rank: tuple[str, ...] = ()
    local_world_size: tuple[str, ...] = ()
    node_rank: tuple[str, ...] = ()
    nnodes: tuple[str, ...] = ()
    #: Variables with the number of tasks of every node in run-length form, `2(x3),1`.
    tasks_per_node: tuple[str, ...] = ()
    #: 'torch' and 'mpi' launchers are compared with others that are there too; a step manager starts them all.
    kind: str = "manager"
    #: Whether whoever wrote the variables owns the process, so that those of an outer layer say nothing about it.
    owner: bool = False


_LOCAL_RANK = ("LOCAL_RANK",)
_LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")
_TORCH_SET = ("RANK", "WORLD_SIZE")

LAUNCHERS = (
    Launcher(
        "torchrun",
        (("TORCHELASTIC_RUN_ID",), _TORCH_SET),
        ("RANK",),
        ("WORLD_SIZE",),
        _LOCAL_RANK,
        _LOCAL_SIZE,
        node_rank=("GROUP_RANK",),
        nnodes=("GROUP_WORLD_SIZE",),
        kind="torch",
        owner=True,
    ),
    Launcher(
        "twinkle",
        (("TWINKLE_LOCAL_INDEX",), _TORCH_SET),
        ("RANK",),
        ("WORLD_SIZE",),
        _LOCAL_RANK,
        _LOCAL_SIZE,
        node_rank=("NODE_RANK",),
        nnodes=("NNODES",),
        kind="torch",
        owner=True,
    ),
    Launcher(
        # Ray workers, Ray Train's among them, inherit whatever started their node's raylet.
        "ray",
        (("RAY_RAYLET_PID",), _TORCH_SET),
        ("RANK",),
        ("WORLD_SIZE",),
        _LOCAL_RANK,
        _LOCAL_SIZE,
        node_rank=("NODE_RANK",),
        nnodes=("NNODES",),
        kind="torch",
        owner=True,
    ),
    Launcher(
        "torch",
        (_TORCH_SET,),
        ("RANK",),
        ("WORLD_SIZE",),
        _LOCAL_RANK,
        _LOCAL_SIZE,
        node_rank=("NODE_RANK", "CROSS_RANK"),
        nnodes=("NNODES", "CROSS_SIZE"),
        kind="torch",
    ),
    Launcher(
        "openmpi",
        (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),),
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        kind="mpi",
    ),
    Launcher(
        "hydra",
        # Slurm's own PMI sets PMI_* as well, so these alone show nothing.
        (("PMI_RANK", "PMI_SIZE"), ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")),
        ("PMI_RANK",),
        ("PMI_SIZE",),
        ("MPI_LOCALRANKID",),
        ("MPI_LOCALNRANKS",),
        kind="mpi",
    ),
    Launcher(
        "mvapich2",
        (("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),),
        ("MV2_COMM_WORLD_RANK",),
        ("MV2_COMM_WORLD_SIZE",),
        ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
        kind="mpi",
    ),
    Launcher(
        "slurm",
        (
            ("SLURM_JOB_ID", "SLURM_JOBID"),
            ("SLURM_STEP_NODELIST",),
            ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
            ("SLURM_PROCID",),
            ("SLURM_LOCALID",),
        ),
        ("SLURM_PROCID",),
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
        ("SLURM_LOCALID",),
        node_rank=("SLURM_NODEID",),
        nnodes=("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
        tasks_per_node=("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
    ),
    Launcher(
        "flux",
        (("FLUX_TASK_RANK",),),
        ("FLUX_TASK_RANK",),
        ("FLUX_JOB_SIZE",),
        ("FLUX_TASK_LOCAL_ID",),
        nnodes=("FLUX_JOB_NNODES",),
    ),
    Launcher("pals", (("PALS_RANKID",),), ("PALS_RANKID",), (), ("PALS_LOCAL_RANKID",)),
    Launcher(
        "jsrun",
        (("JSM_NAMESPACE_RANK",),),
        ("JSM_NAMESPACE_RANK",),
        ("JSM_NAMESPACE_SIZE",),
        ("JSM_NAMESPACE_LOCAL_RANK",),
    ),
)

#: Names of Slurm jobs that are a shell: a step of theirs is nobody's rank.
INTERACTIVE = ("bash", "interactive")
