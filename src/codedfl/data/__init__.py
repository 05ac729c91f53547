"""Datasets and users' own files, feature maps, partitions, and the federation that they make."""

from __future__ import annotations

from codedfl.data.dataset import Dataset, Task
from codedfl.data.features import FeatureMap
from codedfl.data.federation import DeviceSummary, Federation, build_federation
from codedfl.data.fitting import MapKind, Scaling, fit_feature_map
from codedfl.data.load import load_dataset
from codedfl.data.mapped import open_federation, save_federation
from codedfl.data.partition import (
    Partition,
    PartitionKind,
    partition,
    partition_by_column,
    partition_dirichlet,
    partition_iid,
    partition_shards,
)
from codedfl.data.registry import DatasetStatus, list_datasets
from codedfl.data.targets import TaskChoice

__all__ = [
    "Dataset",
    "DatasetStatus",
    "DeviceSummary",
    "FeatureMap",
    "Federation",
    "MapKind",
    "Partition",
    "PartitionKind",
    "Scaling",
    "Task",
    "TaskChoice",
    "build_federation",
    "fit_feature_map",
    "list_datasets",
    "load_dataset",
    "open_federation",
    "partition",
    "partition_by_column",
    "partition_dirichlet",
    "partition_iid",
    "partition_shards",
    "save_federation",
]
