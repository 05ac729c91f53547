"""A real federation: the same schemes on devices of their own, with messages that Flower carries.

`initialise` makes the folder of a federation, `serve` runs its server, `connect` one of its devices, `run_demo` everything on one
machine. Importing this package does not import Flower, but keeps it from calling home when it is.
"""

from codedfl.federation.transport.flower import be_quiet

be_quiet()  # before anything imports flwr

from codedfl.federation._client import Client  # noqa: E402
from codedfl.federation._client_config import ClientConfig  # noqa: E402
from codedfl.federation._config_files import parse_federation, read_client, read_federation  # noqa: E402
from codedfl.federation._demo import run_demo  # noqa: E402
from codedfl.federation._federation_config import FederationConfig  # noqa: E402
from codedfl.federation._launch import (  # noqa: E402
    ServerDied,
    connect,
    device_delta,
    overview,
    read_ledger,
    serve,
)
from codedfl.federation._randomness import DeviceRandomness  # noqa: E402
from codedfl.federation._release_ledger import mechanism_of  # noqa: E402
from codedfl.federation._requests import learnt_exactly, noiseless  # noqa: E402
from codedfl.federation._setup import add_device, config_from_sample, initialise  # noqa: E402

__all__ = [
    "Client",
    "ClientConfig",
    "DeviceRandomness",
    "FederationConfig",
    "ServerDied",
    "add_device",
    "config_from_sample",
    "connect",
    "device_delta",
    "initialise",
    "learnt_exactly",
    "mechanism_of",
    "noiseless",
    "overview",
    "parse_federation",
    "read_client",
    "read_federation",
    "read_ledger",
    "run_demo",
    "serve",
]
