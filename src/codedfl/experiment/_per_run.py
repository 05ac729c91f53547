"""Callbacks that tell the runs of a comparison apart."""

from __future__ import annotations

from codedfl.experiment._build import Experiment
from codedfl.training import Callback, Scheme


class PerRunCallback(Callback):
    """Makes a callback of its own for every run of a comparison or a sweep.

    Runs may advance in lock-step, and a callback is not told whose round it was. Short runs that choose a step size get none.

    Example:
        >>> from codedfl.experiment import run
        >>> class Names(PerRunCallback):
        ...     def for_run(self, experiment, scheme):
        ...         print(experiment.config.data.dataset, scheme.title)
        ...         return Callback()
        >>> comparison = run({"schemes": ["fedavg"], "training.rounds": 2}, callbacks=(Names(),))
        digits FedAvg
    """

    def for_run(self, experiment: Experiment, scheme: Scheme) -> Callback:
        """Return the callback of one run.

        Args:
            experiment: configuration, data, fleet and code.
            scheme: the scheme that is about to be trained.
        """
        raise NotImplementedError
