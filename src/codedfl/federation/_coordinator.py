"""The server of a real federation, from the first greeting to the final model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.errors import InputError
from codedfl.federation._arrivals import NetworkArrivals
from codedfl.federation._config_files import read_federation
from codedfl.federation._context import Journal, ServerContext, ServerPart, Standing
from codedfl.federation._device_data import load_rows
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._joining import Joining, Roster
from codedfl.federation._masked_device import read_roster
from codedfl.federation._masked_uploading import MaskedUploading
from codedfl.federation._requests import UploadTask
from codedfl.federation._results import write_results
from codedfl.federation._rounds import Rounds
from codedfl.federation._settings import remote_setting
from codedfl.federation._store import ServerStore, state_folder
from codedfl.federation._uploading import Uploading
from codedfl.federation.transport import Hub
from codedfl.files import write_atomically
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training import LearningRate, Scheme
from codedfl.typing import FloatArray
from codedfl.uploads import Received


@dataclass
class Coordinator(ServerPart):
    """Runs a federation, and continues one that was interrupted: everything that it has done is on disk.

    Args:
        context: the server.
        folder: the folder of the federation, with ``federation.toml`` and ``server/``.
    """

    folder: Path

    @classmethod
    def open(cls, folder: Path, hub: Hub) -> Coordinator:
        """Open the server of a federation that `initialise` made."""
        config = read_federation(folder / "federation.toml")
        store = ServerStore(state_folder(folder))
        standing = Standing(config.training.most_refusals)
        return cls(ServerContext(config, store, hub, Journal(store), standing), folder)

    def run(self) -> Rounds:
        """Run all phases that are not done yet.

        Raises:
            InputError: if too few devices join or upload, or the disk fails; the run can be resumed.
        """
        config = self.config
        test = server_test_data(self.folder, config)
        self.journal.note("started", scheme=config.scheme, devices=list(config.devices))
        roster = self._roster()
        scheme = config.algorithm
        setting, held = self._uploaded(roster, scheme, test)
        arrivals = NetworkArrivals(len(roster.names), config.training.deadline_s)
        plan = scheme.plan(setting, arrivals)
        scheme.require_possible(setting, plan)
        self._close_uploads(roster, setting)
        prepared = scheme.prepared(setting, plan, held, cost=None)
        rate = self._learning_rate(scheme, setting, roster, held)
        rounds = Rounds(self.context, roster, prepared, rate, arrivals)
        checkpoint = self.store.load()
        if checkpoint is not None:
            rounds.restore(checkpoint)
            if checkpoint.note:
                self.journal.note("older checkpoint", reason=checkpoint.note)
            self.journal.note("resumed", round=checkpoint.round)
        self.journal.status(phase="training", round=rounds.state.round, rounds=rounds.total)
        rounds.run()
        write_results(self.folder, config, rounds)
        self.journal.note("completed", round=rounds.state.round, score=rounds.curve[-1]["score"])
        self.journal.status(phase="completed", round=rounds.state.round, score=rounds.curve[-1]["score"])
        return rounds

    def _roster(self) -> Roster:
        path = self.store.folder / "roster.json"
        roster = Roster.read(path, self.config.prescription())
        if roster is None:
            self.journal.status(phase="joining", joined=0, devices=len(self.config.devices))
            roster = Joining(self.context).roster()
            roster.write(path)
        return roster

    def _uploaded(
        self, roster: Roster, scheme: Scheme, test: tuple[FloatArray, FloatArray] | None
    ) -> tuple[Setting, Any]:
        """Collect what is missing, and build what the server holds; every upload is read once."""
        task = UploadTask.of(self.config)
        declared: dict[str, tuple[float, float]] = {}
        received: Iterable[tuple[int, Received]] = ()
        if task is not None and self.config.coding.sums_only:
            masked = MaskedUploading(self.context, roster, task, self._public_keys())
            masked.collect()
            declared = masked.declared()
            # Summed in the order of the roster, as by a server that sees each.
            total = float(_noise(declared, roster)[:, 0].sum())
            received = [(i, replace(upload, noise_variance=total)) for i, upload in masked.received()]
            names: Collection[str] = tuple(declared)
        elif task is not None:
            names = self._held(Uploading(self.context, roster, task))
            received = self._received(names, task, roster, declared)
        if task is not None and not names:
            raise InputError("no device uploaded anything: see events.jsonl for the reasons, mend them, and resume.")
        held = None
        if scheme.upload is not None:
            held = scheme.upload.collect(self.config.terms, roster.sizes.astype(np.float64), received)
        noise = _noise(declared, roster)
        setting = remote_setting(
            self.config,
            roster.names,
            roster.sizes,
            noise[:, 0],
            noise[:, 1],
            np.array([name in declared for name in roster.names]),
            test,
            Streams(roster.seed),
        )
        return setting, held

    def _received(
        self, names: Collection[str], task: UploadTask, roster: Roster, declared: dict[str, tuple[float, float]]
    ) -> Iterator[tuple[int, Received]]:
        """Yield uploads, of which one is in memory at a time, and note the noise that their devices declared."""
        for name in sorted(names):
            upload = self.store.upload(name, task.upload.name)
            declared[name] = upload.noise_variance, upload.label_noise_variance
            yield roster.index(name), upload

    def _held(self, uploading: Uploading) -> frozenset[str]:
        """Return whose uploads count."""
        if self._uploaded_names.is_file():
            return frozenset(self._uploaded_names.read_text(encoding="utf-8").split())
        return frozenset(uploading.collect())

    @property
    def _uploaded_names(self) -> Path:
        return self.store.folder / "uploaded.txt"

    def _close_uploads(self, roster: Roster, setting: Setting) -> None:
        """Write down whose uploads count: once training has begun, nobody joins them."""
        if UploadTask.of(self.config) is None or self.config.coding.sums_only or self._uploaded_names.is_file():
            return
        held = [name for name, uploads in zip(roster.names, setting.code.uploading, strict=True) if uploads]
        write_atomically(self._uploaded_names, "\n".join(held) + "\n")

    def _public_keys(self) -> dict[str, bytes] | None:
        keys = self.folder / "server" / "keys"
        return read_roster(keys, self.config.devices) if keys.is_dir() else None

    def _learning_rate(self, scheme: Scheme, setting: Setting, roster: Roster, held: Any) -> LearningRate:
        """Return ``eta = scale / L``, with ``L`` from the coded data, or from what devices told."""
        if scheme.tunes_itself:
            return LearningRate(1.0)
        scale, curvature = self.config.training.learning_rate, scheme.loss_for(setting.federation.task).curvature
        if scheme.upload is None or not scheme.upload.stands_for_data:
            return LearningRate.relative(scale, curvature * sum(roster.smoothness))
        data, samples = held[0], setting.federation.samples
        largest = float(np.linalg.norm(data.features.astype(np.float64), 2)) ** 2 / data.coded_samples
        # The noise adds sigma^2 to every eigenvalue; never trust the difference of two large numbers further than a tenth.
        known = max(largest - data.noise_variance, 0.1 * largest)
        # Devices that uploaded nothing are taken to be like the others.
        return LearningRate.relative(
            scale, curvature * known * float(samples.sum() / samples[setting.code.uploading].sum())
        )


def _noise(declared: Mapping[str, tuple[float, float]], roster: Roster) -> FloatArray:
    """Return the noise variances of all devices, (N, 2), zero for those that declared none."""
    return np.array([declared.get(name, (0.0, 0.0)) for name in roster.names]).reshape(-1, 2)


def require_runnable(folder: Path, config: FederationConfig) -> None:
    """Refuse a federation that could not be trained, before anything is started.

    Raises:
        InputError: the scheme and its code do not fit the data, or the server's test data cannot be read.
    """
    server_test_data(folder, config)
    devices = len(config.devices)
    nothing, everybody = np.zeros(devices), np.ones(devices, np.bool_)
    setting = remote_setting(
        config, config.devices, np.ones(devices, np.int64), nothing, nothing, everybody, None, Streams(0)
    )
    scheme = config.algorithm
    scheme.require_possible(setting, scheme.plan(setting, NetworkArrivals(devices, config.training.deadline_s)))


def server_test_data(folder: Path, config: FederationConfig) -> tuple[FloatArray, FloatArray] | None:
    """Return the features and targets that the server evaluates on; None if it has none."""
    if not config.server.test_file:
        return None
    rows = load_rows(folder / config.server.test_file, config)
    return rows.features, rows.labels


def run_server(folder: Path, hub: Hub) -> None:
    """Run the federation of a folder with the devices of a hub; its status says how it ended."""
    coordinator = Coordinator.open(folder, hub)
    with coordinator.store.lock():
        coordinator.journal.status(phase="starting", process=os.getpid())
        try:
            coordinator.run()
        except InputError as error:
            coordinator.journal.note("stopped", reason=str(error))
            coordinator.journal.status(phase="stopped", reason=str(error))
            raise
