"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

ConfigFile = Annotated[
    Path | None, typer.Argument(help="A TOML file; without one, the embedded default.", show_default=False)
]
DatasetName = Annotated[
    str | None,
    typer.Option(help="Named dataset, .npz, .csv or .parquet file, or folder of .npy files.", show_default="digits"),
]
Targets = Annotated[list[str] | None, typer.Option(help="Target column of an own file; repeat for several.")]
Devices = Annotated[int | None, typer.Option(help="Number of devices.", show_default="20")]
CodedSamples = Annotated[int | None, typer.Option(help="Coded samples c of each device.", show_default="1000")]
NoiseVariance = Annotated[float | None, typer.Option(help="Noise variance of each device.", show_default="0.1")]
Seed = Annotated[int | None, typer.Option(help="Seed of all randomness.", show_default="0")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder with the named datasets.", show_default="$CODEDFL_DATA or ./data")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other field of the configuration."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


def collect_overrides(shortcuts: Mapping[str, Any], settings: Sequence[str] | None) -> list[tuple[str, Any]]:
    """Turn the options that were given into overrides of the configuration, ``--set`` last."""
    from codedfl.experiment import parse_override

    given = [(key, str(value) if isinstance(value, Path) else value) for key, value in shortcuts.items()]
    return [item for item in given if item[1] is not None] + [parse_override(text) for text in settings or ()]
