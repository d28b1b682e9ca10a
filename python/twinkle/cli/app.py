"""The subcommands: each turns its options into one question, and prints the answer as text or JSON."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer  # noqa: TID253 - this module is loaded by the command alone

from twinkle.cli.inputs import SIZES, count_of_rows, mesh_of_file, mesh_of_sizes, names_in
from twinkle.cli.printing import print_csv, print_json, print_text, width
from twinkle.errors import TwinkleError
from twinkle.mesh import DeviceMesh  # noqa: TC001 - the signatures below are read when the program starts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["app", "run"]

app = typer.Typer(
    name="twinkle",
    help="Where every rank of a training job is, who is in its group, and which rows are its own.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)

_MEANINGS = {
    "dp": "data parallel (replicas)",
    "fsdp": "fully sharded data parallel",
    "tp": "tensor parallel",
    "pp": "pipeline parallel",
    "cp": "context parallel",
    "ulysses": "ulysses sequence parallel, overlays dp and fsdp",
    "ep": "expert parallel, overlays dp and fsdp",
    "etp": "expert tensor parallel",
    "ep_fsdp": "expert fully sharded data parallel",
}
_AXES = ("dp", "fsdp", "tp", "pp", "cp", "ulysses", "ep", "etp", "ep_fsdp")


def _number(text: str) -> int:
    """A whole number; typer's own sentence would not name the text."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
_Per = Annotated[
    int | None,
    typer.Option("--nproc-per-node", parser=_number, metavar="N", help="Ranks on a node; rank r is on node r // this."),
]
_Batch = Annotated[int | None, typer.Option("--batch", parser=_number, metavar="ROWS", help="Rows of a batch.")]
_All = Annotated[bool, typer.Option("--all", help="Print every line, however many there are.")]
_SPEC = "The mesh that has the rows, outermost axis first: dp=4,tp=2; options as ulysses_size=2; or a file."
_Page = Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write one page for a browser to FILE.")]


def _mesh_parameters() -> list[inspect.Parameter]:
    """The options that every command about a mesh has."""
    sized: list[tuple[str, Any, Any]] = [
        (
            name,
            int | None,
            typer.Option(f"--{name.replace('_', '-')}", parser=_number, metavar="SIZE", help=_MEANINGS[name]),
        )
        for name in SIZES
    ]
    order = "Axes outermost first (pp,dp,tp), or a Megatron order, fastest first (tp-cp-ep-dp-pp)."
    table = "A mesh in a .json, .yaml or .npy file, instead of sizes."
    sized += [
        ("order", str | None, typer.Option("--order", metavar="AXES", help=order)),
        (
            "world_size",
            int | None,
            typer.Option("--world-size", parser=_number, metavar="RANKS", help="All ranks; an open dp takes the rest."),
        ),
        ("file", str | None, typer.Option("--mesh", metavar="FILE", help=table)),
        (
            "names",
            str | None,
            typer.Option("--names", metavar="AXES", help="The axes of a bare table in --mesh, outermost first."),
        ),
    ]
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, kind, default=None, annotation=Annotated[annotation, option])
        for name, annotation, option in sized
    ]


def _mesh_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a mesh, as one that takes the options of a mesh in its place."""
    options = _mesh_parameters()

    @functools.wraps(command)
    def with_mesh(**given: Any) -> None:
        chosen = {option.name: given.pop(option.name) for option in options}
        command(_mesh(chosen), **given)

    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters = [*own, *options]
    with_mesh.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_mesh.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return app.command(command.__name__.removesuffix("_"))(with_mesh)


def _mesh(chosen: dict[str, Any]) -> DeviceMesh:
    from twinkle.cli.inputs import InputError

    file, names = chosen.pop("file"), chosen.pop("names")
    order, world_size = chosen.pop("order"), chosen.pop("world_size")
    if file is None:
        if names is not None:
            raise InputError("--names is for a table of ranks in --mesh FILE")
        return mesh_of_sizes(chosen, order, world_size)
    if order is not None or world_size is not None or any(size is not None for size in chosen.values()):
        raise InputError("give either --mesh FILE or sizes, not both")
    return mesh_of_file(file, names)


@_mesh_command
def mesh(
    mesh: DeviceMesh, *, nproc_per_node: _Per = None, batch: _Batch = None, html: _Page = None, as_json: _Json = False
) -> None:
    """Axes, strides, groups and data ranks of a mesh, and which axes stay inside a node."""
    from twinkle.show.answers import about_mesh
    from twinkle.show.text import mesh_text

    if html is not None:
        from twinkle.show.page import mesh_page

        _write(html, mesh_page(mesh, nproc_per_node=nproc_per_node, batch=batch))
    if as_json:
        print_json(about_mesh(mesh, nproc_per_node))
    elif html is None:
        print_text(mesh_text(mesh, nproc_per_node=nproc_per_node, width=width()))


@_mesh_command
def rank(
    mesh: DeviceMesh,
    rank: Annotated[int, typer.Argument(parser=_number, metavar="RANK", help="A global rank.")],
    *,
    nproc_per_node: _Per = None,
    batch: _Batch = None,
    as_json: _Json = False,
) -> None:
    """Everything about one rank: coordinates, every group it is in, node and local rank, rows of a batch."""
    from twinkle.show.answers import about_rank
    from twinkle.show.text import rank_text

    if as_json:
        print_json(about_rank(mesh, rank, nproc_per_node, batch))
    else:
        print_text(rank_text(mesh, rank, nproc_per_node=nproc_per_node, batch=batch, width=width()))


def _axes_that_begin(incomplete: str) -> list[str]:
    *before, last = incomplete.split(",")
    names = (*_AXES, "data")
    return [",".join([*before, name]) for name in names if name.startswith(last) and name not in before]


@_mesh_command
def groups(
    mesh: DeviceMesh,
    axes: Annotated[str, typer.Argument(help="Axes, as tp or dp,cp.", autocompletion=_axes_that_begin)],
    *,
    everything: _All = False,
    as_json: _Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print group,index,rank lines.")] = False,
) -> None:
    """The groups along some axes: the ranks that differ only there."""
    from twinkle.show.answers import listed_groups
    from twinkle.show.text import groups_text

    named = names_in(axes)
    if as_json:
        print_json({"axes": named, "groups": listed_groups(mesh, named)})
    elif as_csv:
        lines = ((group, *each) for group, ranks in enumerate(listed_groups(mesh, named)) for each in enumerate(ranks))
        print_csv(("group", "index", "rank"), lines)
    else:
        print_text(groups_text(mesh, named, everything=everything, width=width()))


@_mesh_command
def slices(
    mesh: DeviceMesh,
    *,
    batch: Annotated[int, typer.Option("--batch", parser=_number, metavar="ROWS", help="Rows of a batch.")],
    everything: _All = False,
    as_json: _Json = False,
) -> None:
    """The rows that every data rank gets out of a batch."""
    from twinkle.show.answers import about_slices
    from twinkle.show.text import slices_text

    if as_json:
        print_json(about_slices(mesh, batch))
    else:
        print_text(slices_text(mesh, batch, everything=everything, width=width()))


@app.command()
def flow(
    *,
    source: Annotated[str, typer.Option("--from", metavar="MESH", help=_SPEC)],
    target: Annotated[str, typer.Option("--to", metavar="MESH", help="The mesh that gets them.")],
    batch: Annotated[int, typer.Option("--batch", parser=_number, metavar="ROWS", help="Rows of a batch.")],
    collect_from: Annotated[
        str, typer.Option("--collect-from", help="Who has them: pp_last, pp_first, any or all.")
    ] = "pp_last",
    everything: _All = False,
    html: _Page = None,
    as_json: _Json = False,
) -> None:
    """The rows that move from the shards of one mesh to those of another."""
    from twinkle.cli.inputs import checked_collect_from, side_of_words
    from twinkle.show.flow import about_flow, flow_text

    holders = checked_collect_from(collect_from)
    rows, sides = count_of_rows(batch), (side_of_words(source, "--from"), side_of_words(target, "--to"))
    if html is not None:
        from twinkle.show.flow_page import flow_page

        _write(html, flow_page(rows, *sides, collect_from=holders))
    if as_json:
        print_json(about_flow(rows, *sides, holders))
    elif html is None:
        print_text(flow_text(rows, *sides, collect_from=holders, everything=everything, width=width()))


@app.command()
def env(*, as_json: _Json = False) -> None:
    """Launcher, devices and masks as this process sees them, and which device would be bound, and why."""
    from twinkle.show.surroundings import about_surroundings, surroundings_text

    found = about_surroundings()
    if as_json:
        print_json(found)
    else:
        print_text(surroundings_text(found, width=width()))


@app.command()
def allocate(
    file: Annotated[str, typer.Argument(metavar="GROUPS", help="A .yaml or .json list of device groups.")],
    *,
    nodes: Annotated[int, typer.Option("--nodes", parser=_number, metavar="N", help="How many nodes there are.")] = 1,
    gpus: Annotated[int, typer.Option("--gpus", parser=_number, metavar="N", help="Devices on a node.")] = 8,
    cpus: Annotated[int, typer.Option("--cpus", parser=_number, metavar="N", help="CPUs on a node.")] = 64,
    family: Annotated[str, typer.Option("--family", help="What the devices are: GPU, NPU, rocm ...")] = "GPU",
    nproc_per_node: Annotated[
        int | None,
        typer.Option(
            "--nproc-per-node",
            parser=_number,
            metavar="N",
            help="Ranks that a node takes; all its devices if left out.",
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Which node and devices every worker of some device groups would get."""
    from twinkle.cli.inventories import placed

    found = placed(file, nodes=nodes, gpus=gpus, cpus=cpus, family=family, nproc_per_node=nproc_per_node)
    if as_json:
        workers = {name: [vars(worker) for worker in group] for name, group in found.items()}
        print_json(workers)
    else:
        from twinkle.show.placement import placement_text

        print_text(placement_text(found, width=width()))


def _write(name: str, text: str) -> None:
    from pathlib import Path

    from twinkle.cli.inputs import InputError

    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    print(f"wrote {name}", file=sys.stderr)


def run(arguments: Sequence[str]) -> int:
    """Runs the command; 0 for an answer, 2 for bad input, said in one line on standard error."""
    try:
        ended = app(arguments, prog_name="twinkle", standalone_mode=False)
    except TwinkleError as refusal:
        return _refused(str(refusal))
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        # Which class a usage error has depends on the version of typer; all of them can say what is wrong.
        say = getattr(error, "format_message", None)
        if say is None:
            raise
        message = say()
        if not message or "\n" in message:
            print(message or "", file=sys.stderr)
            return 2
        return _refused(message)
    return ended if isinstance(ended, int) else 0


def _refused(message: str) -> int:
    print(f"twinkle: {' '.join(message.split())}", file=sys.stderr)
    return 2
