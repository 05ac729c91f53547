"""Flower's ServerApp: runs the program of a server with a hub."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from codedfl.federation._config_files import read_federation
from codedfl.federation.transport.flower._hub import FlowerHub

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the program that the run configuration names, for the folder that it names."""
    folder = Path(str(context.run_config["folder"]))
    devices = read_federation(folder / "federation.toml").devices
    hub = FlowerHub(grid, devices, bool(context.run_config["authenticated"]))
    resolve_name(str(context.run_config["program"]))(folder, hub)
