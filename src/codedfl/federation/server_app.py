"""Flower's ServerApp of a federation."""

from __future__ import annotations

import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from codedfl.errors import InputError
from codedfl.federation._config_files import read_federation
from codedfl.federation._coordinator import Coordinator
from codedfl.federation._grid import GridExchange

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation whose folder the run configuration names."""
    folder = Path(str(context.run_config["folder"]))
    config = read_federation(folder / "federation.toml")
    authenticated = bool(context.run_config["authenticated"])
    coordinator = Coordinator.open(folder, GridExchange(grid, config.devices, authenticated))
    with coordinator.store.lock():
        coordinator.journal.status(phase="starting", process=os.getpid())
        try:
            coordinator.run()
        except InputError as error:
            coordinator.journal.note("stopped", reason=str(error))
            coordinator.journal.status(phase="stopped", reason=str(error))
            raise
