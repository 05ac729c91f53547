"""``codedfl federation``: a real federation over a network."""

from __future__ import annotations

import json
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from codedfl.cli.options import Json

if TYPE_CHECKING:
    from codedfl.federation import FederationConfig

federation = typer.Typer(
    help="A real federation: a server and devices that connect to it over a network.\n\nExample: codedfl federation demo",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(help="Folder of the federation.", show_default=False)]
DeviceFolder = Annotated[Path, typer.Argument(help="Folder of the device, with its client.toml.", show_default=False)]
Transport = Literal["flower", "local"]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="No encryption and no authentication: for a trial on one machine.")
]


def require_flower(*, messages: bool = True) -> None:
    """Refuse to go on without the packages of the extra; Flower itself is for messages over a network."""
    from codedfl.errors import InputError

    for package in (*(["flwr"] if messages else []), "cryptography", "Crypto"):
        if find_spec(package) is None:
            raise InputError(
                f'a federation needs {package}, which is not installed: run pip install "codedfl[flower]".'
            )


@federation.command()
def init(
    folder: Folder,
    sample: Annotated[
        Path | None,
        typer.Option(
            help="A PUBLIC table with the columns that devices have: gives columns, classes, means and scales.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Column(s) of the sample to predict.", show_default=False)
    ] = None,
    device: Annotated[list[str] | None, typer.Option(help="Name of a device; repeat it.", show_default=False)] = None,
    config: Annotated[
        Path | None, typer.Option(help="A federation.toml to start from, in place of a sample.", show_default=False)
    ] = None,
    scheme: Annotated[str | None, typer.Option(help="Scheme to train with.", show_default="ccfl")] = None,
    address: Annotated[
        str | None, typer.Option(help="host:port that devices connect to.", show_default="127.0.0.1:9092")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Further name or address of the server, for its certificate.", show_default=False),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Set any other field of federation.toml."),
    ] = None,
    insecure: Insecure = False,
    json_: Json = False,
) -> None:
    """Make the folder of a federation: configuration, certificates, and a folder with its own key for each device.

    Example: codedfl federation init clinics --sample public.csv --target diagnosis --device north --device south
    """
    require_flower()
    from codedfl.federation import initialise, learnt_exactly, noiseless

    made = _configuration(sample, target or [], device or [], config, scheme, address, set_ or [])
    initialise(folder, made, hosts=host or [], insecure=insecure)
    if json_:
        made_of = {"devices": list(made.devices), "scheme": made.scheme, "encrypted": not insecure}
        print(json.dumps({"folder": str(folder), **made_of, "upload_has_noise": not noiseless(made)}))
        return
    console = Console()
    console.print(f"[bold]{folder}[/bold] is ready, with {len(made.devices)} device(s):")
    console.print(
        "  1. Look through federation.toml; every device has a copy in its folder, and they must stay the same."
    )
    console.print("  2. Carry each folder devices/NAME to its device over a safe way, and put the data file into it.")
    console.print(f"  3. On the server: codedfl federation server {folder}")
    console.print("  4. On each device: codedfl federation client NAME")
    if exactly := learnt_exactly(made):
        console.print(
            f"[bold]The upload of {made.scheme} has no noise[/], whatever coding.noise_variance and client.toml say: the server"
            f" learns {exactly} of every device."
        )
    elif noiseless(made):
        console.print(
            f"[bold]The upload of {made.scheme} has no noise[/], whatever coding.noise_variance says, unless a device sets"
            " privacy.noise_variance in its client.toml; --set options.noise=true adds it for all."
        )
    if insecure:
        console.print("[bold red]Nothing is encrypted, and nobody is authenticated: use it on one machine alone.[/]")


def _configuration(
    sample: Path | None,
    target: list[str],
    devices: list[str],
    config: Path | None,
    scheme: str | None,
    address: str | None,
    settings: list[str],
) -> FederationConfig:
    """Return the configuration that the options of ``init`` describe."""
    from codedfl.config import parse_override
    from codedfl.errors import InputError
    from codedfl.federation import config_from_sample, parse_federation, read_federation

    if (sample is None) == (config is None):
        raise InputError(
            "give either --sample, a public table like those of the devices, or --config, a federation.toml."
        )
    if config is not None:
        made = read_federation(config)
        given = [("--target", target), ("--device", devices)]
        for option, values in given:
            if values:
                raise InputError(f"{option} applies to --sample: set it in {config} instead.")
    else:
        assert sample is not None
        if not devices or not target:
            raise InputError("--sample needs --target, the column to predict, and a --device for each device.")
        made = config_from_sample(sample, target, devices)
    settings_of: dict[str, Any] = made.model_dump(mode="json")
    overrides: list[tuple[str, Any]] = [parse_override(text) for text in settings]
    if scheme is not None:
        settings_of["options"] = {}
        overrides.insert(0, ("scheme", scheme))
    if address is not None:
        overrides.insert(0, ("server.address", address))
    for key, value in overrides:
        *path, name = key.split(".")
        section: Any = settings_of
        for part in path:
            section = section.setdefault(part, {}) if isinstance(section, dict) else {}
        section[name] = value
    return parse_federation(settings_of)


@federation.command("add-device")
def add_device(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="Name of the new device.", show_default=False)],
    json_: Json = False,
) -> None:
    """Add a device before training begins: a key and a folder for it, and what the others need to know.

    Example: codedfl federation add-device clinics west
    """
    require_flower()
    from codedfl.federation import add_device as add

    added = add(folder, name)
    if json_:
        copies = [{"file": str(file), "as": str(place)} for file, place in added.copies]
        print(json.dumps({"folder": str(added.folder), "copies": copies}))
        return
    console = Console()
    console.print(f"Carry {added.folder} to the device. Copy to the folder of every other device:")
    for file, place in added.copies:
        console.print(f"  {file} as {place}")


@federation.command()
def server(folder: Folder, json_: Json = False) -> None:
    """Run the server until training is complete; Ctrl-C stops it, and `resume` goes on.

    Example: codedfl federation server clinics
    """
    _serve(folder, resume=False, json_=json_)


@federation.command()
def resume(folder: Folder, json_: Json = False) -> None:
    """Continue a run from its last completed round; no device is asked to encode again.

    Example: codedfl federation resume clinics
    """
    _serve(folder, resume=True, json_=json_)


def _serve(folder: Path, *, resume: bool, json_: bool) -> None:
    require_flower()
    from codedfl.cli.federation_tables import EventPrinter, devices_table, privacy_sentence
    from codedfl.errors import InputError
    from codedfl.federation import ServerDied, serve

    console = Console(stderr=True)
    try:
        serve(folder, resume=resume, listener=EventPrinter(console))
    except ServerDied as died:
        raise InputError(str(died)) from died
    except KeyboardInterrupt:
        console.print(f"stopped: continue with codedfl federation resume {folder}", markup=False)
        raise
    summary = json.loads((folder / "results" / "summary.json").read_text(encoding="utf-8"))
    if json_:
        print(json.dumps(summary))
    else:
        console = Console()
        console.print(devices_table(summary))
        console.print(privacy_sentence(summary["privacy"]))
        console.print(f"model, learning curve, arrivals and summary: {folder / 'results'}")


@federation.command()
def client(folder: DeviceFolder) -> None:
    """Connect a device to its server, and answer until stopped; it reconnects by itself.

    Example: codedfl federation client north
    """
    require_flower()
    from codedfl.federation import connect

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for chatty in ("httpx", "httpcore", "flwr"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    connect(folder)


@federation.command()
def status(folder: Folder, json_: Json = False) -> None:
    """Show how far a federation is, and how its devices behave.

    Example: codedfl federation status clinics --json
    """
    from codedfl.cli.federation_tables import status_table
    from codedfl.federation import overview

    config, now, events = overview(folder)
    if json_:
        print(json.dumps({"federation": config.name, "devices": list(config.devices), "status": now}))
    else:
        Console().print(status_table(config.devices, now, events))


@federation.command()
def ledger(folder: DeviceFolder, json_: Json = False) -> None:
    """Show everything that a device ever released; refuses a ledger that was altered.

    Example: codedfl federation ledger north
    """
    from codedfl.cli.federation_tables import ledger_table
    from codedfl.federation import device_delta, read_ledger

    entries = read_ledger(folder)
    if json_:
        print(json.dumps(entries))
    else:
        Console().print(ledger_table(entries, device_delta(folder)))


@federation.command()
def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder for the federation.", show_default="a new one in runs/")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Number of rounds.", min=3, show_default="20, or the scheme's own"),
    ] = None,
    scheme: Annotated[str, typer.Option(help="Scheme to train with.")] = "ccfl",
    transport: Annotated[
        Transport,
        typer.Option(help="flower: a process for each party, messages over TLS. local: threads in this process."),
    ] = "flower",
    insecure: Insecure = False,
    json_: Json = False,
) -> None:
    """Run a complete federation on this machine: a server and four devices, one slow and one that dies and comes back.

    Example: codedfl federation demo --rounds 10
    """
    require_flower(messages=transport == "flower")
    from codedfl.cli.federation_tables import EventPrinter, demo_table
    from codedfl.cli.outputs import results_folder
    from codedfl.federation import run_demo

    console = Console(stderr=True)
    folder = results_folder(out, "federation", "demo")
    result = run_demo(
        folder, EventPrinter(console), rounds=rounds, scheme=scheme, insecure=insecure, transport=transport
    )
    if json_:
        print(json.dumps(result))
    else:
        Console().print(demo_table(result))
